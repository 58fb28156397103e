// What the planner had to choose from for a call, what it chose, and why each candidate won, lost
// or was refused: as data, as text for people and as JSON for programs. Used by qcclExplain and
// qccl-info explain. Pure; any thread.
#pragma once

#include "plan/budget_choice.hpp"
#include "plan/link_bytes.hpp"

#include <optional>
#include <string>
#include <vector>

namespace qccl {

struct ExplainedCandidate {
    enum class Verdict : uint8_t {
        chosen,
        lost,
        refused,    // it could run and may not be chosen by itself
        impossible, // it cannot run
    };
    Plan plan; // an impossible one has neither geometry nor cost
    Verdict verdict = Verdict::lost;
    std::string why; // in words that follow "<algorithm>: "
    std::optional<LinkBytes> link_bytes = {};
    std::optional<double> regret = {}; // as MinimaxRegret has it, of those that may be chosen
};

struct Explanation {
    Problem problem; // as asked
    Problem planned; // as it is planned: with the codec and the places that count
    Tables tables;
    BudgetChoice choice; // its outcome and options are of interest with a budget alone
    std::vector<ExplainedCandidate> candidates = {}; // with the chosen codec
    // How long the call would take without codec, where it travels with one that between hosts has
    // to pay for itself.
    std::optional<Plan> lossless = {};

    // What the caller adds: which items of settings decided, a line for each, and what carries the
    // call. Empty: nothing is said of it.
    std::string rules = {}, transport = {};

    const Plan &chosen() const { return choice.plan; }
    // Whether the call is cut as its times are counted. The usual limits of a reproducible
    // communicator are those of one host, and differ from its own without anybody's setting.
    bool has_usual_cut() const {
        return tables.is_reproducible || tables.limits == tables.usual_limits;
    }
    // A line that begins with the chosen algorithm.
    std::string reason() const;
};

// `forced` as in choose. `link_bytes` counts bytes by link class; null: nothing does. The problem's
// places outlive the explanation. An error as choose's.
Result<Explanation> explain(const Problem &problem, const Tables &tables,
                            const Algorithm &forced = {}, LinkByteCounter *link_bytes = nullptr);

// A head line, the circumstances, a line for each candidate, and the reason.
// `shows_places`: false where they have been shown, as of another call of the same ranks.
std::string print_text(const Explanation &explanation, bool shows_places = true);

// One object, in one line; perf/qccl-info.1 describes it. A reader takes documents whose version
// it knows, and passes over members that it does not.
inline constexpr int explain_json_version = 1;
std::string print_json(const Explanation &explanation);

// "1.5 ms".
std::string print_time(double ns);

} // namespace qccl
