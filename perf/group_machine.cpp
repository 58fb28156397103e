// Implements group_machine.hpp: each rank sends its host, its machine and its cores to all others,
// and all compute the same from them.
#include "perf/group_machine.hpp"

#include "base/host_identity.hpp"
#include "base/process.hpp"
#include "base/short_text.hpp"

#include <algorithm>
#include <climits>
#include <map>

#include <sched.h>
#include <unistd.h>

namespace qccl::perf {

namespace {

struct RankFacts {
    uint64_t host = 0, machine = 0; // hosts may be containers on one machine
    cpu_set_t cores{};
};

Result<RankFacts> facts_of_this_rank(const Settings &settings) {
    RankFacts facts;
    QCCL_TRY(const std::string host, host_identity(settings));
    QCCL_TRY(const std::string boot, boot_id());
    facts.host = hash_text(host);
    facts.machine = hash_text(boot.empty() ? host : boot);
    CPU_ZERO(&facts.cores);
    // The call fails on a machine with more cores than a cpu_set_t can hold; ranks then count as
    // not sharing cores.
    (void)sched_getaffinity(0, sizeof facts.cores, &facts.cores);
    return facts;
}

double most_ranks_per_core(const std::vector<RankFacts> &all) {
    double most = 1;
    for (const RankFacts &each : all) {
        const auto sharers = std::ranges::count_if(all, [&](const RankFacts &other) {
            cpu_set_t common;
            CPU_AND(&common, &each.cores, &other.cores);
            return other.machine == each.machine && CPU_COUNT(&common) > 0;
        });
        if (const int cores = CPU_COUNT(&each.cores); cores > 0)
            most = std::max(most, static_cast<double>(sharers) / cores);
    }
    return most;
}

// Returns for each host or machine the cores that its ranks may run on.
std::map<uint64_t, cpu_set_t> cores_by(const std::vector<RankFacts> &all,
                                       uint64_t RankFacts::*place) {
    std::map<uint64_t, cpu_set_t> cores;
    for (const RankFacts &each : all) {
        cpu_set_t &known = cores.try_emplace(each.*place, cpu_set_t{}).first->second;
        CPU_OR(&known, &known, &each.cores);
    }
    return cores;
}

int least_of(const std::map<uint64_t, cpu_set_t> &cores) {
    int least = INT_MAX;
    for (const auto &[number, known] : cores) least = std::min(least, CPU_COUNT(&known));
    return least;
}

int sum_of(const std::map<uint64_t, cpu_set_t> &cores) {
    int sum = 0;
    for (const auto &[number, known] : cores) sum += CPU_COUNT(&known);
    return sum;
}

// Sets machine.cores to the cores of the host that has the fewest. If all hosts are on one machine
// and share cores, sets it to the cores of all hosts together.
void take_cores(const std::vector<RankFacts> &all, Machine &machine) {
    const auto of_hosts = cores_by(all, &RankFacts::host),
               of_machines = cores_by(all, &RankFacts::machine);
    machine.hosts_share_cores = of_machines.size() == 1 && sum_of(of_hosts) > sum_of(of_machines);
    const int cores = least_of(machine.hosts_share_cores ? of_machines : of_hosts);
    if (cores > 0) machine.cores = cores;
}

} // namespace

Result<Machine> machine_of(RankGroup &rank_group) {
    Machine machine;
    QCCL_TRY(machine.settings, read_settings(environ));
    QCCL_TRY(const RankFacts mine, facts_of_this_rank(machine.settings));
    QCCL_TRY(const std::vector<RankFacts> all, gather(rank_group, mine));
    std::map<uint64_t, uint32_t> hosts;
    std::vector<RankLocation> spots;
    for (const RankFacts &each : all) {
        const auto next = static_cast<uint32_t>(hosts.size());
        const uint32_t host = hosts.try_emplace(each.host, next).first->second;
        spots.push_back({.node = 0, .host = host, .rack = 0});
    }
    machine.ranks = rank_group.size();
    machine.ranks_per_core = most_ranks_per_core(all);
    take_cores(all, machine);
    if (hosts.size() > 1) {
        machine.places = std::make_shared<const RankTopology>(std::move(spots));
        machine.far = FarLink();
    }
    return machine;
}

} // namespace qccl::perf
