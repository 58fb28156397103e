// What the creation of communicators asks of `topology`: the machines of a job and the figures
// measured on them. MachineTopology is what this process knows of the machine it runs on: a thread
// discovers the machine once, or the process learns it from the rank of this machine that has
// discovered it; later communicators reuse it. TopologyExchange brings the ranks of a job to one
// graph: on each host one rank knows the machine, and the others read its text in memory that they
// share; hosts that differ exchange their texts in pieces. All ranks call the exchange together,
// and it blocks in the caller's all-gather.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/system.hpp"
#include "comm/implementations.hpp"
#include "topology/graph.hpp"
#include "topology/job_graph.hpp"
#include "topology/sources/machine_sources.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- This process's machine

// Equal on all ranks of a machine, and on machines that are built alike.
struct MachineTopology {
    Graph graph;      // of the machine, without its name
    std::string text; // text form of the graph, which ranks exchange
    uint64_t hash = 0;
    std::string warning = {}; // of the rank that discovered the machine; empty elsewhere
    std::string origin = {};  // what was read instead of the hardware; empty elsewhere
};
using MachineTopologyRef = std::shared_ptr<const MachineTopology>;

// What a job wants to know of the machine.
struct MachineRequest {
    std::string interfaces; // QCCL_SOCKET_IFNAME
    NetworkChoice network;  // result of network_choice()
    bool has_gpus = false;  // a rank of the job has one, so that links between GPUs count

    bool operator==(const MachineRequest &) const = default;
};
MachineRequest machine_request(const Settings &settings, bool has_gpus);

// Returns the topology that the process knows for this question; null: none yet. Any thread.
MachineTopologyRef known_machine_topology(const MachineRequest &question);
// Replaces that topology, without its warning and origin. Any thread.
void keep_machine_topology(const MachineRequest &question, const MachineTopologyRef &topology);

// Returns a machine with one NUMA node, for a topology that cannot be used; `why` becomes part of
// the warning.
MachineTopologyRef plain_machine_topology(const char *why);

// Parses a text that another process has written. Returns invalid_argument with a sentence that
// says what is wrong with the text.
Result<MachineTopologyRef> read_machine_topology(std::string text);

// Discovers the machine in a thread, unless the process knows it. Never fails: if hwloc fails,
// `warning` says so.
class MachineDiscovery {
public:
    void start(const MachineRequest &question);
    // Waits for the thread. Never returns null.
    MachineTopologyRef finish();
    // Says after finish() by what and in which time the machine was discovered, for the log.
    std::string report() const;

private:
    MachineRequest question_;
    MachineTopologyRef found_;
    std::chrono::nanoseconds took_{}; // 0: the process knew the machine
    ServiceThread thread_;
};

// ---- All ranks' machines

struct AgreedTopology {
    std::shared_ptr<const JobTopology> job;
    // By rank: the number of its NUMA node; empty if the machine has none, or only one.
    std::vector<std::optional<uint32_t>> numas;
};

class TopologyExchange {
public:
    using Gather = TopologyAgreement::Gather;

    // `hosts`: by rank. `gpu`: the bus id of this rank's GPU; empty: the rank has no GPU, or one in
    // no slot.
    TopologyExchange(uint32_t rank, std::vector<RankHost> hosts, std::string gpu);

    // Whether this rank is the first of its host, which has to know its machine.
    bool is_leader() const { return leaders_[rank_] == rank_; }
    // `known`: what this rank knows of its machine; null only if the rank is no leader. A leader
    // writes into the memory `own`; `leaders` is that memory of this host's leader, which other
    // ranks read until the last all-gather is over. An error comes from the all-gather, or means
    // that another rank has sent invalid data (internal_error).
    Result<AgreedTopology> run(MachineTopologyRef known, std::span<std::byte> own,
                               std::span<const std::byte> leaders, const Gather &gather);
    // The topology of this rank's machine after run(): that of its leader.
    const MachineTopologyRef &node() const { return node_; }

private:
    struct MachineNote;
    struct SharedText;
    using Texts = std::map<uint64_t, SharedText>;         // by hash
    using Nodes = std::map<uint64_t, MachineTopologyRef>; // by hash

    void publish(std::span<std::byte> memory);
    MachineNote note() const;
    Done gather_notes(const Gather &gather, std::vector<MachineNote> &notes) const;
    Done learn_from(std::span<const std::byte> memory, const MachineNote &of_leader);
    Done check_notes(const std::vector<MachineNote> &notes) const;
    Done gather_texts(const Gather &gather, Texts &texts) const;
    Result<Nodes> gather_nodes(const Gather &gather, const std::vector<MachineNote> &notes) const;
    Result<AgreedTopology> merge(const std::vector<MachineNote> &notes, const Nodes &nodes) const;

    const uint32_t rank_;
    const std::vector<RankHost> hosts_;
    const std::string gpu_;
    std::vector<uint32_t> leaders_; // by rank: the first rank on its host
    MachineTopologyRef node_;
};

// ---- The interface's implementation

const TopologySource &topology_source();

} // namespace qccl
