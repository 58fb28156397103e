// A job on a machine that need not exist: plans its calls as a communicator there would, by the
// settings of this process, and simulates them. Used by calibration, qccl-perf simulate and
// qccl-info whatif. Calls block while they compute or read.
//
// The rules for calls that the settings of this process define are shown by qccl-info and applied
// by a SimulatedJob; reading them reads the plan file. The machine that the user asks about is
// described in words, and known_machine checks that enough of it is known; it reads settings and
// files as command_line.hpp does. Any thread.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/report/measurement.hpp"
#include "plan/call_policy.hpp"
#include "plan/simulator/fabric.hpp"
#include "plan/simulator/simulator.hpp"

#include <memory>
#include <string>

namespace qccl::perf {

// ---- The machine in words

// Returns a text such as "4 hosts", "1 host of the topology's 64", "2 hosts of the topology's 8,
// all in one rack".
std::string hosts_text(const Machine &machine);
// Returns a text such as ", and 0.125 GB/s for all of a rack", to follow the rate between hosts;
// empty if no rack rate is known.
std::string racks_text(const Machine &machine);
// Returns a text such as "4 ranks on 4 hosts with 0.125 GB/s between them" or "4 ranks on 1 host of
// the topology's 64".
std::string describe(const Machine &machine);

// Finds the machine for an answer in times. Refuses a question without the number of ranks, and
// hosts without a known rate between them.
Result<Machine> known_machine(const MachineRequest &request);

// ---- Rules for calls

// Reads the file that QCCL_PLAN_FILE names.
Result<EnvRules> read_env_rules(const Settings &settings);

// Prints the items of QCCL_CODEC and QCCL_ALGO that have conditions, and what the plan file is for.
void print_rules(const EnvRules &rules);

// Returns the policy for the calls of a communicator with this name and with so many ranks and
// hosts. Fails with invalid_argument if the plan file belongs to another job.
Result<CallPolicy> policy_here(const Settings &settings, uint32_t ranks, uint32_t hosts,
                               const std::string &communicator = {});

// ---- Simulation

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
