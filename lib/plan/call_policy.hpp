// What a call gets that the caller, the communicator and the environment want differently: codec,
// algorithm and cut, each by the first that names it: the call's config, the communicator's,
// QCCL_CODEC and QCCL_ALGO, the plan file; else no codec, and the planner chooses. Pure: the caller
// logs. Any thread, nothing blocks.
#pragma once

#include "plan/plan_file.hpp"
#include "plan/rules.hpp"

#include <functional>
#include <optional>
#include <string>

namespace qccl {

struct Settings;

// What the environment wants, of every communicator.
struct EnvRules {
    Rules codecs, algorithms;     // of QCCL_CODEC and QCCL_ALGO
    std::optional<PlanFile> plan; // of QCCL_PLAN_FILE
};
// Until `each` gives an error, which is handed on.
Done for_each_rule(const EnvRules &rules, const std::function<Done(const Rule &)> &each);
// `read` gives the text of the file that a path names. An error names the setting.
using ReadFile = std::function<Result<std::string>(const std::string &path)>;
Result<EnvRules> parse_env_rules(const Settings &settings, const ReadFile &read);

struct CodecChoice {
    Codec codec; // the planner may still find the call too small for it
    // Set where a codec of the communicator or the environment cannot do this call, which therefore
    // goes lossless.
    std::optional<Error> passed_over;
    const Rule *rule = nullptr; // of the environment, which decided

    // That, in a sentence; empty: nothing was.
    std::string notice() const {
        return passed_over ? passed_over->text + std::string("; such calls go lossless") : "";
    }
};

struct AlgorithmChoice {
    Algorithm algorithm; // the empty one: the planner chooses
    const Rule *rule = nullptr;
};

// All of them, with a line for each that somebody else than the call has decided: for explanations.
struct CallChoice {
    Codec codec;
    Algorithm algorithm;
    Pieces pieces;
    std::string reasons; // "codec int4 by item 2 of QCCL_CODEC, "int4@bytes>=1M"", or empty
};

struct CallPolicy {
    std::optional<Codec> codec; // of the communicator; an explicit none is one too
    Algorithm algorithm;        // likewise
    Rules codecs, algorithms;   // of the environment, for this communicator
    std::optional<PlanFile> plan;
    uint32_t ranks = 1, nodes = 1;
    // Whether QCCL_SEGMENT and QCCL_LANES are set, which a plan file does not override.
    bool has_segment = false, has_lanes = false;

    CallTraits traits(Collective collective, DataType type, RedOp op, uint64_t count) const {
        return {.collective = collective,
                .type = type,
                .op = op,
                .count = count,
                .ranks = ranks,
                .nodes = nodes};
    }
    // An error where the call's own codec cannot do it.
    Result<CodecChoice> choose_codec(const Codec *of_call, const CallTraits &call) const;
    // Of a call that names none.
    AlgorithmChoice choose_algorithm(const CallTraits &call) const;
    Pieces choose_pieces(const CallTraits &call, const Rule **rule = nullptr) const;
    // `algorithm_of_call`: the empty one where the call names none.
    Result<CallChoice> choose(const Codec *of_call, const Algorithm &algorithm_of_call,
                              const CallTraits &call) const;

    // What the ranks compare. The environment's codec reaches less than the communicator's: the
    // same spec is not the same wish.
    std::string codec_text() const;
    std::string algorithm_text() const;
    std::string plan_text() const;
};

// Of a communicator of this name. `ranks` and `nodes` are left for the caller to fill in.
CallPolicy policy_of(const EnvRules &rules, const Settings &settings, const std::string &name);

} // namespace qccl
