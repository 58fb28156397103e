// Explains the plan of a call: the candidates that the planner had, the one that it chose, and why
// each candidate won, lost or was refused. The explanation is data, text for people, or JSON for
// programs. Used by qcclExplain and qccl-info explain. Pure; any thread.
#pragma once

#include "plan/budget_choice.hpp"
#include "plan/link_bytes.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl {

struct ExplainedCandidate {
    enum class CandidateStatus : uint8_t {
        chosen,
        lost,
        refused,    // it can run, but only if the caller asks for it
        impossible, // it cannot run
    };
    Plan plan; // without geometry and cost if impossible
    CandidateStatus status = CandidateStatus::lost;
    std::string why; // text that follows "<algorithm>: "
    std::optional<LinkBytes> link_bytes = {};
    std::optional<double> regret = {}; // MinimaxRegret's, of a candidate that may be chosen
};

struct Explanation {
    Problem problem; // as asked
    Problem planned; // as planned: with the codec and the places that count
    PlannerInputs inputs;
    BudgetChoice choice;                             // outcome and options matter only for a budget
    std::vector<ExplainedCandidate> candidates = {}; // with the chosen codec
    // The plan without a codec, if the call uses a codec that must pay for itself between hosts.
    std::optional<Plan> lossless = {};

    // The caller fills these in: which items of settings decided, a line for each, and what carries
    // the call. Empty: the output does not mention it.
    std::string rules = {}, transport = {};

    const Plan &chosen() const { return choice.plan; }
    // Whether the call is cut by the limits that its predicted times assume. The usual limits of a
    // reproducible communicator are those of one host, and differ from its own without any setting.
    bool has_usual_cut() const {
        return inputs.is_reproducible || inputs.limits == inputs.usual_limits;
    }
    // Returns a line that begins with the chosen algorithm.
    std::string reason() const;
};

// Explains the plan of a call. `forced`: as in choose(). `link_bytes` counts bytes by link class;
// null: they are not counted. The problem's places have to outlive the explanation. Returns the
// errors of choose().
Result<Explanation> explain(const Problem &problem, const PlannerInputs &inputs,
                            const Algorithm &forced = {}, LinkByteCounter *link_bytes = nullptr);

// Returns a head line, the circumstances, a line for each candidate, and the reason.
// `shows_places`: false if the places were shown before, for example with another call of the same
// ranks.
std::string print_text(const Explanation &explanation, bool shows_places = true);

// print_json returns one object in one line; perf/qccl-info.1 describes it. A reader accepts
// documents whose version it knows, and skips members that it does not know.
inline constexpr int explain_json_version = 1;
std::string print_json(const Explanation &explanation);

// Returns a time in words, for example "1.5 ms".
std::string print_time(double ns);

} // namespace qccl
