// Implements simulated_job.hpp: planning by the settings, and simulation with corrections.
#include "perf/simulated_job.hpp"

#include "perf/policy_info.hpp"
#include "topology/graph_fabric.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl::perf {

static uint32_t nodes_of(const Machine &machine) { return static_cast<uint32_t>(machine.hosts()); }

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
             policy_here(machine.settings, machine.ranks, nodes_of(machine), communicator));
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
    QCCL_TRY(Simulation simulation, run_uncorrected(planned, options));
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
        return Error::make(Code::invalid_argument,
                           "a call of %" PRIu64 " segments, of which at most %" PRIu64
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
