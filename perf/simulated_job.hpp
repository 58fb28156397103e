// A job on a machine that need not exist: plans its calls as a communicator there would, by the
// settings of this process, and simulates them. Used by calibration, qccl-perf simulate and
// qccl-info whatif. Calls block while they compute.
#pragma once

#include "perf/machine_options.hpp"
#include "perf/operation.hpp"
#include "plan/call_policy.hpp"
#include "plan/simulator.hpp"
#include "plan/simulator_speeds.hpp"

#include <memory>
#include <string>

namespace qccl::perf {

// Returns options that repeat a call as a benchmark does: ranks begin together, and the first call
// is not counted. With very many ranks only one call is simulated, which takes long enough.
SimulationOptions repeated_calls(uint32_t ranks);

class SimulatedJob {
public:
    // `communicator` is its name, for the conditions of rules. Fails if a plan file or rule cannot
    // be read or belongs to another job, and if no path of the topology connects the ranks.
    static Result<SimulatedJob> create(const Machine &machine, const std::string &communicator);

    struct PlannedCall {
        SimulatedCall call;
        Plan plan;
        std::string reasons; // the rules that have decided; empty: none
    };
    // `codec` null: the environment's, or none. `algorithm` empty: the environment's, or the
    // planner's choice.
    Result<PlannedCall> plan(const Operation &operation, const Codec *codec,
                             const Algorithm &algorithm) const;
    // Simulates the call, repeated as in a benchmark if options.calls is above 1. Corrects the
    // times if a calibration has compared such calls with measured ones. If lossless calls leave a
    // link no bursts, the other calls get none either, because a benchmark runs both in turns.
    Result<Simulation> run(const PlannedCall &planned, SimulationOptions options) const;

    const Machine &machine() const { return *machine_; }
    const TieredRates &rates() const { return rates_; }
    // What the planner counts with, and users say: the simulator's own latencies leave out what it
    // counts apart.
    const CostModel &speeds() const { return inputs_.speeds; }

private:
    SimulatedJob() = default;
    SimulatedHost host() const;
    Result<Simulation> run_uncorrected(const PlannedCall &planned, SimulationOptions options) const;

    std::shared_ptr<const Machine> machine_; // calls refer to its places
    PlannerInputs inputs_;
    CallPolicy policy_;
    TieredRates rates_;
    std::unique_ptr<Fabric> fabric_;
};

} // namespace qccl::perf
