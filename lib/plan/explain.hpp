// Explains the plan of a call: the candidates that the planner had, the one that it chose, and why
// each candidate won, lost or was refused. The explanation is data, text for people, or JSON for
// programs. It can show how many bytes the call sends over links of each class, all ranks together;
// these counts come from the schedules of all ranks.
//
// Used by qcclExplain, qccl-info explain and the topology graph. Pure; any thread, but a
// LinkByteCounter serves one thread at a time.
#pragma once

#include "base/link_class.hpp"
#include "base/result.hpp"
#include "base/text.hpp"
#include "plan/planner.hpp"
#include "plan/sampled_error.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace qccl {

// ---- Bytes by link class

// Returns the class of the path of a message between two ranks.
using LinkClassOf = std::function<LinkClass(uint32_t from, uint32_t to)>;
// Returns the classes for ranks of which only the hosts are known: shared memory within a host, and
// TCP between hosts. `places` (null: one host) has to outlive the result.
LinkClassOf link_class_by_hosts(const RankTopology *places);

using LinkBytes = std::array<uint64_t, link_classes>; // by class

class LinkByteCounter {
public:
    // For more ranks, writing the schedules takes minutes.
    static constexpr uint32_t most_ranks = 1024;

    explicit LinkByteCounter(LinkClassOf link_class) : link_class_(std::move(link_class)) {}

    // Returns the bytes, headers included. `problem` has the plan's codec and places. Schedules are
    // the same for all sizes, types and codecs. The first call for an algorithm, a collective and a
    // root writes them, so the places have to be the same in all calls. An error says why there is
    // no such schedule.
    Result<LinkBytes> count(const Plan &plan, const Problem &problem, const ShapeLimits &limits);

private:
    // How often all ranks together send each chunk.
    struct ChunkSends {
        uint32_t chunks = 0, outbox = 0;
        // Indexed by class, then by whether the inner tiers' codec is used, then by chunk.
        std::array<std::array<std::vector<uint64_t>, 2>, link_classes> times{};
    };

    Result<const ChunkSends *> sends_of(const Algorithm &algorithm, const Problem &problem);
    Result<ChunkSends> count_sends(const Algorithm &algorithm, const Problem &problem) const;

    const LinkClassOf link_class_;
    std::map<std::string, ChunkSends> known_; // by algorithm, collective and root
};

// ---- Explanations

enum class CandidateStatus : uint8_t {
    chosen,
    lost,
    refused,    // it can run, but only if the caller asks for it
    impossible, // it cannot run
};

struct ExplainedCandidate {
    Plan plan; // without geometry and cost if impossible
    CandidateStatus status = CandidateStatus::lost;
    std::string why; // text that follows "<algorithm>: "
    std::optional<LinkBytes> link_bytes = {};
    std::optional<double> regret = {}; // MinimaxRegret's, of a candidate that may be chosen
    // The NMSE that is expected of the caller's values, if the caller knows better than by
    // Explanation::sample.
    std::optional<double> expected_nmse = {};
};

struct Explanation {
    Problem problem; // as asked
    Problem planned; // as planned: with the codec and the places that count
    PlannerInputs inputs;
    BudgetChoice choice;                             // outcome and options matter only for a budget
    std::vector<ExplainedCandidate> candidates = {}; // with the chosen codec
    // The plan without a codec, if the call uses a codec that must pay for itself between hosts.
    std::optional<Plan> lossless = {};

    // The caller fills these in: the v-form, if the call is one; what is known about the values;
    // which items of settings decided, a line for each; and what carries the call. Empty: the
    // output does not mention it.
    std::optional<Collective> v_form = {};
    std::optional<SumStatistics> sample = {};
    std::string rules = {}, transport = {};

    // Returns the NMSE that is expected of a candidate by what is known about the values; nothing
    // if nothing is known.
    std::optional<double> expected_of(const ExplainedCandidate &candidate) const;

    // Drops the candidates that lack the v-form.
    void set_v_form(Collective form);
    const char *call_name() const { return name(v_form.value_or(problem.collective)); }

    const Plan &chosen() const { return choice.plan; }
    // Whether the call is cut by the limits that its predicted times assume. The usual limits of a
    // reproducible communicator are those of one host, and differ from its own without any setting.
    bool has_usual_cut() const {
        return inputs.is_reproducible || inputs.limits == inputs.usual_limits;
    }
    // Returns a line that begins with the chosen algorithm.
    std::string reason() const;
    // Returns what codec the call travels with and why, if it is not the codec that was asked for;
    // else an empty text.
    std::string codec_reason() const;
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

} // namespace qccl
