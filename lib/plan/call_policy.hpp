// Decides codec, algorithm and cut of a call where the call, its communicator and the environment
// ask for different ones. The first source that names one wins: the call's config, the
// communicator's, QCCL_CODEC and QCCL_ALGO, the plan file. If none does, the call has no codec, and
// the planner chooses the rest.
//
// A plan file, which QCCL_PLAN_FILE names, says what the calls of a job get where neither the
// program nor QCCL_CODEC and QCCL_ALGO decide.
//
// Used by the C API, the plans of tensors and the tools. Pure: the caller reads and writes the
// file, and logs. Any thread, nothing blocks.
//
//     # comment
//     qccl-plan version=1 rules=2
//     job ranks=8 nodes=2
//     codec=none parts=4 @count=589824,type=float,collective=all_reduce
//     codec=int4 algorithm=ring lanes=2 @op=sum,bytes>=1M
//
// The first line of a plan file has the version; `rules`, the number of rules, is optional. The
// optional line `job` says for which communicators the plan is. Each further line is a rule. A rule
// names a codec, an algorithm or a cut, or several of them with blanks between. A cut consists of
// lanes and of either segment, the bytes of a segment, or parts, the segments of each chunk. A
// selector behind an '@' picks the calls. Each of codec, algorithm and cut comes from the first
// line that matches the call and names one.
#pragma once

#include "base/result.hpp"
#include "plan/rules.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// ---- Plan files

inline constexpr uint64_t newest_plan_version = 1;
// Largest accepted file. Plans of a hundred thousand tensors are smaller.
inline constexpr size_t most_plan_bytes = size_t{16} << 20;

struct PlanFile {
    uint32_t ranks = 0, hosts = 0; // of the plan's communicators; 0: any number
    Rules rules;
};

// Parses a plan file. An error (invalid_argument) names the line and what is possible.
Result<PlanFile> parse_plan_file(std::string_view text);
// Returns a text that parse_plan_file reads back to the same plan.
std::string print(const PlanFile &plan);

// Refuses a plan that is for other numbers of ranks or hosts (invalid_argument).
Done check_job(const PlanFile &plan, uint32_t ranks, uint32_t hosts);

// ---- Policies

struct Settings;

// What the environment asks for, in every communicator.
struct EnvRules {
    Rules codecs, algorithms;     // of QCCL_CODEC and QCCL_ALGO
    std::optional<PlanFile> plan; // of QCCL_PLAN_FILE
};
// Calls `each` for every rule. Stops at the first error and returns it.
Done for_each_rule(const EnvRules &rules, const std::function<Done(const Rule &)> &each);
// Parses the rules that the settings contain. `read` returns the text of the file at a path. An
// error names the setting.
using ReadFile = std::function<Result<std::string>(const std::string &path)>;
Result<EnvRules> parse_env_rules(const Settings &settings, const ReadFile &read);

struct CodecChoice {
    Codec codec; // the planner may still drop it if the call is too small
    // Set if a codec of the communicator or the environment cannot encode this call, which is
    // therefore lossless.
    std::optional<Error> passed_over;
    const Rule *rule = nullptr; // of the environment, if it decided

    static constexpr std::string_view consequence = "; such calls go lossless";
    // Returns why a codec was passed over, in a sentence; empty if none was.
    std::string notice() const {
        return passed_over ? passed_over->text + std::string(consequence) : "";
    }
};

struct AlgorithmChoice {
    Algorithm algorithm; // empty: the planner chooses
    const Rule *rule = nullptr;
};

// All decisions for a call. `reasons` has a line for each one that was not made by the call itself;
// explanations print it.
struct CallChoice {
    Codec codec;
    Algorithm algorithm;
    Pieces pieces;
    std::string reasons; // "codec int4 by item 2 of QCCL_CODEC, "int4@bytes>=1M"", or empty
};

struct CallPolicy {
    std::optional<Codec> codec; // the communicator's; an explicit none counts, too
    Algorithm algorithm;        // the communicator's
    Rules codecs, algorithms;   // the environment's, for this communicator
    std::optional<PlanFile> plan;
    uint32_t ranks = 1, hosts = 1;
    // A GPU sums the values of so many ranks exactly; nothing: no rank has a GPU.
    std::optional<uint32_t> most_exact_ranks;
    bool has_gpus() const { return most_exact_ranks.has_value(); }
    // Whether QCCL_SEGMENT and QCCL_LANES are set. A plan file does not override them.
    bool has_segment = false, has_lanes = false;

    CallTraits traits(Collective collective, DataType type, RedOp op, uint64_t count) const {
        return {.collective = collective,
                .type = type,
                .op = op,
                .count = count,
                .ranks = ranks,
                .hosts = hosts};
    }
    // `of_call`: null if the call names no codec. Returns an error if the call's own codec cannot
    // encode it.
    Result<CodecChoice> choose_codec(const Codec *of_call, const CallTraits &call) const;
    // For a call that names no algorithm. `v_form`: which form the call is, if it is one; a rule
    // for its collective whose algorithm lacks the form is passed over.
    AlgorithmChoice choose_algorithm(const CallTraits &call,
                                     std::optional<Collective> v_form = {}) const;
    // `rule`, unless null, receives the rule that decided.
    Pieces choose_pieces(const CallTraits &call, const Rule **rule = nullptr) const;
    // Makes all decisions. `algorithm_of_call`: empty if the call names none.
    Result<CallChoice> choose(const Codec *of_call, const Algorithm &algorithm_of_call,
                              const CallTraits &call, std::optional<Collective> v_form = {}) const;

    // Whether the communicator's calls can be encoded so (check_codec). The error is
    // invalid_argument.
    Done check(const Codec &codec, const CallTraits &call) const;
    Done check_shared(const Codec &asked) const; // the part of `check` for shared scales

    // Texts that the ranks compare. A codec of the environment reaches fewer calls than the
    // communicator's, so their texts differ even if the spec is the same.
    std::string codec_text() const;
    std::string algorithm_text() const;
    std::string plan_text() const;
};

// Returns the policy for a communicator of this name. The caller fills in `ranks`, `hosts` and what
// the communicator's config names.
CallPolicy policy_of(const EnvRules &rules, const Settings &settings, const std::string &name);

} // namespace qccl
