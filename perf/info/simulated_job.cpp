// Implements simulated_job.hpp: texts about machines for people, the rules by the library's own
// parsers, planning by the settings, and simulation with corrections.
#include "perf/info/simulated_job.hpp"

#include "base/system.hpp"
#include "topology/formats/read_topology.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <set>
#include <span>
#include <utility>

namespace qccl::perf {

// ---- The machine in words

static std::string counted(size_t number, const char *thing) {
    return std::to_string(number) + " " + thing + (number == 1 ? "" : "s");
}

// Counts the networks (racks) that contain the machines of these vertices.
static size_t racks_of(const Graph &graph, std::span<const uint32_t> vertices) {
    std::set<uint32_t> racks;
    for (const uint32_t vertex : vertices)
        racks.insert(graph.vertex(graph.machine_of(vertex)).parent);
    return racks.size();
}

std::string hosts_text(const Machine &machine) {
    std::string text = counted(machine.hosts(), "host");
    const size_t there =
        machine.topology ? machine.topology->graph.of_kind(VertexKind::machine).size() : 0;
    if (there <= machine.hosts()) return text;
    const Graph &graph = machine.topology->graph;
    const bool is_in_one_rack = racks_of(graph, machine.topology->places) == 1 &&
                                racks_of(graph, graph.of_kind(VertexKind::machine)) > 1;
    return text + " of the topology's " + std::to_string(there) +
           (is_in_one_rack ? ", all in one rack" : "");
}

std::string racks_text(const Machine &machine) {
    const auto rate = machine.rack_bytes_per_ns();
    char text[64] = "";
    if (rate) std::snprintf(text, sizeof text, ", and %.4g GB/s for all of a rack", *rate);
    return text;
}

std::string describe(const Machine &machine) {
    std::string text = counted(machine.ranks, "rank") + " on " + hosts_text(machine);
    if (machine.hosts() < 2) return text;
    const auto rate = machine.remote_bytes_per_ns();
    char between[80] = " with an unknown rate between them";
    if (rate) std::snprintf(between, sizeof between, " with %.4g GB/s between them", *rate);
    return text + between + racks_text(machine);
}

Result<Machine> known_machine(const MachineRequest &request) {
    if (!request.says_ranks())
        return invalid_argument("on which machines? Say it as in --topology '4 x node(16 core) "
                                "net:10gbit', or as in --hosts 1,1,1,1 --rate 10gbit");
    QCCL_TRY(Machine machine, find_machine(request));
    if (machine.hosts() > 1 && !machine.remote_bytes_per_ns())
        return invalid_argument(
            "how fast the links between the hosts are is unknown, and with it "
            "whether a codec pays: say it as in --rate 10gbit, or in the topology "
            "as in net:10gbit");
    return machine;
}

// ---- Rules for calls

Result<EnvRules> read_env_rules(const Settings &settings) {
    return parse_env_rules(
        settings, [](const std::string &path) { return read_regular_file(path, most_plan_bytes); });
}

static void print_items(const Rules &rules) {
    for (const Rule &rule : rules.all()) {
        if (rules.all().size() == 1 && rule.selector.is_unconditional()) return;
        const std::string conditions = spec(rule.selector);
        std::printf("  %s, item %u: %s for %s\n", rule.source->setting, rule.number,
                    rule.codec        ? spec(*rule.codec).c_str()
                    : *rule.algorithm ? spec(*rule.algorithm).c_str()
                                      : "auto",
                    conditions.empty() ? "all calls" : conditions.c_str());
    }
}

void print_rules(const EnvRules &rules) {
    print_items(rules.codecs);
    print_items(rules.algorithms);
    if (!rules.plan) return;
    std::string job;
    if (rules.plan->ranks != 0) job += " ranks=" + std::to_string(rules.plan->ranks);
    if (rules.plan->hosts != 0) job += " nodes=" + std::to_string(rules.plan->hosts);
    const size_t lines = rules.plan->rules.all().size();
    std::printf("  QCCL_PLAN_FILE: %zu %s%s%s\n", lines, lines == 1 ? "rule" : "rules",
                job.empty() ? "" : " for", job.c_str());
}

Result<CallPolicy> policy_here(const Settings &settings, uint32_t ranks, uint32_t hosts,
                               const std::string &communicator) {
    QCCL_TRY(const EnvRules rules, read_env_rules(settings));
    CallPolicy policy = policy_of(rules, settings, communicator);
    policy.ranks = ranks;
    policy.hosts = hosts;
    if (!policy.plan) return policy;
    if (const Done is_ours = check_job(*policy.plan, ranks, hosts); !is_ours)
        return invalid_argument("QCCL_PLAN_FILE: %.160s: %.300s", settings.plan_file.c_str(),
                                is_ours.error().text);
    return policy;
}

// ---- Simulation

static uint32_t hosts_of(const Machine &machine) { return static_cast<uint32_t>(machine.hosts()); }

SimulationOptions repeated_calls(uint32_t ranks) {
    constexpr uint32_t many_ranks = 1024;
    if (ranks > many_ranks) return {};
    return {.calls = 2, .lead_in = 1};
}

SimulatedHost SimulatedJob::host() const {
    return {static_cast<double>(machine_->ranks_together()), machine_->has_gpus};
}

Result<SimulatedJob> SimulatedJob::create(const Machine &machine, const std::string &communicator) {
    SimulatedJob job;
    job.machine_ = std::make_shared<const Machine>(machine);
    job.inputs_ = inputs_of(machine);
    QCCL_TRY(job.policy_,
             policy_here(machine.settings, machine.ranks, hosts_of(machine), communicator));
    job.rates_ = tiered_rates(job.inputs_.speeds, job.host());
    job.rates_.cores = machine.cores.value_or(0);
    job.rates_.rack_rate = static_cast<double>(machine.settings.rack_rate.value_or(0)) / 1e9;
    job.rates_.hosts_share_cores = machine.hosts_share_cores;
    if (machine.topology) {
        QCCL_TRY(job.fabric_, make_graph_fabric(*machine.topology, job.rates_,
                                                machine.settings.link_rate.has_value()));
    } else {
        job.fabric_ = make_tiered_fabric(machine.ranks, machine.places.get(), job.rates_);
    }
    return job;
}

Result<SimulatedJob::PlannedCall> SimulatedJob::plan(const Operation &operation, const Codec *codec,
                                                     const Algorithm &algorithm) const {
    QCCL_TRY(const CallChoice choice,
             policy_.choose(codec, algorithm,
                            policy_.traits(operation.collective, operation.type, operation.op,
                                           operation.count)));
    const PlannerInputs inputs = inputs_of(*machine_, choice.pieces);
    Problem problem{.collective = operation.collective,
                    .count = operation.count,
                    .ranks = operation.ranks,
                    .root = operation.root,
                    .type = operation.type,
                    .codec = choice.codec,
                    .places = machine_->places.get()};
    PlannedCall planned;
    QCCL_TRY(planned.plan, choose(problem, inputs, choice.algorithm));
    problem.codec = planned.plan.codec;
    problem.places = planned_places(problem.places, inputs);
    const CostModel &speeds = inputs_.speeds; // inputs.speeds may be machine-independent
    planned.call = {.problem = problem,
                    .algorithm = planned.plan.algorithm,
                    .limits = inputs.limits,
                    .speeds = compute_speeds(speeds, problem, planned.plan.inner_codec, host()),
                    .eager = {speeds.eager_bytes, speeds.eager_exchanges}};
    planned.reasons = choice.reasons;
    return planned;
}

static void multiply(Simulation &simulation, double factor) {
    PathTimes &critical = simulation.critical;
    for (double *const time : {&simulation.time_ns, &critical.compute_ns, &critical.handling_ns,
                               &critical.wire_ns, &critical.latency_ns, &simulation.compute_ns})
        *time *= factor;
    for (std::vector<double> *const times : {&simulation.finish_ns, &simulation.busy_ns})
        for (double &time : *times) time *= factor;
}

Result<Simulation> SimulatedJob::run(const PlannedCall &planned, SimulationOptions options) const {
    QCCL_TRY(Simulation simulation, run_uncorrected(planned, std::move(options)));
    const Problem &problem = planned.call.problem;
    // A communicator of only some of the job's ranks is another job.
    if (machine_->simulated && machine_->simulated->shape == shape_of(*machine_))
        multiply(simulation, machine_->simulated->of({.collective = problem.collective,
                                                      .algorithm = planned.call.algorithm,
                                                      .width = width_of(problem.codec)},
                                                     vector_bytes(problem)));
    return simulation;
}

Result<Simulation> SimulatedJob::run_uncorrected(const PlannedCall &planned,
                                                 SimulationOptions options) const {
    constexpr uint64_t most_instances = uint64_t{1} << 20; // some gigabytes of memory, and minutes
    if (const uint64_t instances = planned.plan.geometry.instances; instances > most_instances)
        return invalid_argument("a call of %" PRIu64 " segments, of which at most %" PRIu64
                                " are simulated",
                                instances, most_instances);
    if (rates_.line_burst_bytes > 0 && options.calls > 1) {
        constexpr double hardly_any = 0.2;
        SimulatedCall lossless = planned.call;
        lossless.problem.codec = {};
        lossless.speeds = compute_speeds(inputs_.speeds, lossless.problem, {}, host());
        QCCL_TRY(
            const Simulation before,
            simulate(lossless, *fabric_, {.calls = options.calls, .lead_in = options.lead_in}));
        if (before.burst_share < hardly_any) options.burst_share = 0;
    }
    return simulate(planned.call, *fabric_, options);
}

} // namespace qccl::perf
