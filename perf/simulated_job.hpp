// A job on a machine that need not be there: plans its calls as a communicator there would, by the
// settings of this process, and simulates them. Used by qccl-perf simulate and qccl-info whatif.
#pragma once

#include "perf/machine_options.hpp"
#include "perf/operation.hpp"
#include "plan/call_policy.hpp"
#include "plan/simulator.hpp"
#include "plan/simulator_speeds.hpp"

#include <memory>
#include <string>

namespace qccl::perf {

// As a benchmark has it: ranks begin together, and the first call is not counted. Of very many
// ranks there is but one call, which takes long enough to simulate.
SimulationOptions repeated_calls(uint32_t ranks);

class SimulatedJob {
public:
    // `communicator`: its name, for conditions of rules. An error: a plan file or rule that cannot
    // be read or is another job's, and a topology in which no path connects the ranks.
    static Result<SimulatedJob> create(const Machine &machine, const std::string &communicator);

    struct PlannedCall {
        SimulatedCall call;
        Plan plan;
        std::string reasons; // which rules have decided; empty: none
    };
    // `codec` null: none, or what the environment says; `algorithm` empty: likewise, or the
    // planner's choice.
    Result<PlannedCall> plan(const Operation &operation, const Codec *codec,
                             const Algorithm &algorithm) const;
    // As a benchmark repeats the call, if options.calls is above 1; its times are corrected where a
    // calibration has compared such calls with measured ones. Lines that lossless calls leave
    // no room for bursts have none for the others, with which those take turns.
    Result<Simulation> run(const PlannedCall &planned, SimulationOptions options) const;

    const Machine &machine() const { return *machine_; }
    const TieredRates &rates() const { return rates_; }
    // What the planner counts with, and users say: the simulator's own latencies leave out what it
    // counts apart.
    const Speeds &speeds() const { return tables_.speeds; }

private:
    SimulatedJob() = default;
    SimulatedHost host() const;
    Result<Simulation> run_uncorrected(const PlannedCall &planned, SimulationOptions options) const;

    std::shared_ptr<const Machine> machine_; // calls refer to its places
    Tables tables_;
    CallPolicy policy_;
    TieredRates rates_;
    std::unique_ptr<Fabric> fabric_;
};

} // namespace qccl::perf
