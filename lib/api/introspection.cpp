// C functions that ask: for the version and for errors, what a communicator would do (qcclExplain),
// and what it has done (qcclCommGetStats). Any thread may call them at any time; they do not wait
// for other ranks. The question of qcclExplain is parsed word by word.
#include "api/introspection.hpp"

#include "api/call/entry.hpp"
#include "base/text.hpp"
#include "comm/boundary.hpp"
#include "plan/explain.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace qccl {

// ---- The question of qcclExplain

namespace {

struct Words {
    ExplainQuery question;
    std::optional<uint64_t> bytes, count;
};

Error unclear(std::string_view word) {
    return invalid_argument(
        "what: \"%.*s\" is not understood; expected a collective (%s) or a v-form, then bytes= or "
        "count=, type=, op=, root=, codec=, algorithm=, sample=INPUT/RESULT/RATIO[/OWN], "
        "format=text or json",
        static_cast<int>(std::min<size_t>(word.size(), 40)), word.data(),
        listed({collective_names.begin(), collective_names.end()}).c_str());
}

template <class Value, class Parsed> bool store(Value &value, const Parsed &parsed) {
    if (parsed) value = *parsed;
    return parsed.has_value();
}

// Parses the NMSE of one encode of the ranks' values and of one of the result, the power ratio and,
// if there is a fourth number, the share of the squares that ranks sum themselves.
std::optional<SumStatistics> parse_sample(std::string_view text) {
    constexpr size_t fewest = 3, most = 4;
    std::vector<double> numbers;
    const char *at = text.data(), *const end = at + text.size();
    for (bool is_last = false; !is_last; at++) {
        double number = 0;
        const auto [behind, error] = std::from_chars(at, end, number);
        if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
        is_last = behind == end;
        if (!is_last && *behind != '/') return std::nullopt;
        numbers.push_back(number);
        at = behind;
    }
    if (numbers.size() < fewest || numbers.size() > most || numbers[2] == 0) return std::nullopt;
    const bool has_own = numbers.size() == most;
    if (has_own && numbers.back() > 1) return std::nullopt;
    const Loss input{.growth = numbers[0]}, result{.growth = numbers[1]};
    return SumStatistics{.input = input,
                         .result = result,
                         .inner_input = input,
                         .inner_result = result,
                         .power_ratio = numbers[2],
                         .own_share = has_own ? std::optional(numbers.back()) : std::nullopt};
}

Result<bool> take_word(std::string_view word, Words &words) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
        words.question.v_form = parse_v_form(word);
        return store(words.question.collective, words.question.v_form
                                                    ? row_of(*words.question.v_form).v_form_of
                                                    : parse_collective(word));
    }
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "bytes") return store(words.bytes, parse_bytes(value));
    if (key == "count") return store(words.count, parse_bytes(value));
    if (key == "type") return store(words.question.type, parse_type(value));
    if (key == "op") return store(words.question.op, parse_op(value));
    if (key == "sample") return store(words.question.sample, parse_sample(value));
    if (key == "codec") {
        QCCL_TRY(words.question.codec, parse_codec(value));
        return true;
    }
    if (key == "format") {
        words.question.is_json = value == "json";
        return value == "json" || value == "text";
    }
    if (key == "algorithm") words.question.algorithm = value;
    const auto root = key == "root" ? parse_count(value) : std::nullopt;
    if (root && *root <= UINT32_MAX) words.question.root = static_cast<uint32_t>(*root);
    return key == "algorithm" || (root && *root <= UINT32_MAX);
}

// The library does not guess which of two values is meant.
Done check_once(std::string_view word, std::vector<std::string_view> &keys) {
    const std::string_view key = word.substr(0, word.find('='));
    if (std::ranges::find(keys, key) != keys.end())
        return invalid_argument("what: %.*s= is given twice", static_cast<int>(key.size()),
                                key.data());
    keys.push_back(key);
    return {};
}

} // namespace

Result<ExplainQuery> parse_explain_query(std::string_view text, uint32_t ranks) {
    Words words;
    std::vector<std::string_view> keys;
    bool is_first = true;
    while (!text.empty()) {
        const size_t end = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (word.empty()) continue;
        QCCL_TRY(const bool understood, take_word(word, words));
        const bool is_collective = word.find('=') == std::string_view::npos;
        if (!understood || is_collective != is_first) return unclear(word);
        QCCL_TRY(check_once(word, keys));
        is_first = false;
    }
    if (is_first) return unclear("");
    if (words.bytes && words.count)
        return invalid_argument("what: bytes= and count= are both there; one of them is enough");

    ExplainQuery &question = words.question;
    const uint64_t parts = parts_of(question.collective, ranks);
    // As in a call, where no rank knows all counts.
    if (question.v_form && !are_counts_common(*question.v_form)) {
        words.count = unknown_part_count;
        words.bytes.reset();
    }
    question.count =
        words.count.value_or(words.bytes.value_or(0) / type_bytes(question.type) / parts);
    if (question.count > PTRDIFF_MAX / type_bytes(question.type) / parts) return unclear("count");
    return question;
}

// ---- Errors

// Of a communicator that is not made, this is why it cannot be used.
static std::optional<RecordedError> last_error_of(const CommRef &comm) {
    const Done made = comm.record().is_made();
    if (!made) return RecordedError{made.error(), {}};
    return comm->last_error();
}

static qcclErrorInfo_t to_info(const RecordedError &recorded, int32_t rank) {
    qcclErrorInfo_t info{};
    info.code = to_c(recorded.error.code);
    info.rank = rank;
    info.peer = recorded.error.rank;
    info.collective = recorded.call.collective;
    info.call = recorded.call.number;
    info.tag = recorded.call.tag;
    info.expected = recorded.error.expected;
    info.got = recorded.error.got;
    return info;
}

// ---- Plans and statistics

static Result<std::string> answer(const Comm &comm, const char *what) {
    QCCL_TRY(const ExplainQuery question, parse_explain_query(what, comm.size()));
    QCCL_TRY(check_op(question.collective, question.type, question.op));
    const CommParts &parts = comm.parts();
    Algorithm named;
    if (!question.algorithm.empty()) {
        QCCL_TRY(named, parse_algorithm(question.algorithm));
        if (const auto form = question.v_form; form && !named.has(*form))
            return invalid_argument("there is no %s by %s", name(*form), spec(named).c_str());
    }
    // As in a call.
    CodedValues values =
        coded_values(question.collective, question.type, question.op, question.count);
    QCCL_TRY(CallChoice choice,
             parts.policy.choose(
                 question.codec ? &*question.codec : nullptr, named,
                 parts.policy.traits(question.collective, values.type, question.op, values.count),
                 question.v_form));
    if (question.v_form && !are_counts_common(*question.v_form) && !choice.algorithm)
        choice.algorithm = algorithms().front();
    if (choice.codec.keeps_type()) values = {question.type, question.count};
    PlannerInputs inputs = parts.inputs;
    inputs.limits = limits_of(chunking_with(choice.pieces, parts.cut));
    LinkByteCounter link_bytes(parts.links ? parts.links->link_classes()
                                           : link_class_by_hosts(parts.places.get()));
    QCCL_TRY(Explanation explanation,
             explain({.collective = question.collective,
                      .count = values.count,
                      .ranks = comm.size(),
                      .root = question.root,
                      .type = values.type,
                      .codec = choice.codec,
                      .places = parts.places.get()},
                     inputs, choice.algorithm, question.is_json ? &link_bytes : nullptr));
    if (question.v_form) explanation.set_v_form(*question.v_form);
    explanation.sample = question.sample;
    explanation.rules = choice.reasons;
    if (choice.codec.guard != 0)
        explanation.rules += comm.guards().describe({.collective = question.collective,
                                                     .type = values.type,
                                                     .op = question.op,
                                                     .root = question.root,
                                                     .count = values.count});
    explanation.transport = parts.transport->name();
    return question.is_json ? print_json(explanation) : print_text(explanation);
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclGetVersion(int *version_out) {
    return guarded([=]() -> Done {
        if (!version_out) return invalid_argument("version_out is NULL");
        *version_out = QCCL_VERSION;
        return {};
    });
}
QCCL_TWIN(qcclGetVersion);

const char *qcclGetErrorString(qcclResult_t result) { return code_text(static_cast<Code>(result)); }
QCCL_TWIN(qcclGetErrorString);

const char *qcclGetLastError(qcclComm_t comm) {
    LastError &last = last_error();
    last.shown[0] = 0;
    if (!comm)
        std::snprintf(last.shown, sizeof last.shown, "%s", last.error.text);
    else
        // A question must not cause an error itself. A value that never was a handle has no
        // sentence. An ended handle, or a handle of a forked child's parent, has only the sentence
        // of its refusal.
        (void)exception_boundary([&]() -> Done {
            const auto usable = take_unmade_comm(comm);
            if (!usable && usable.error().code == Code::invalid_usage)
                std::snprintf(last.shown, sizeof last.shown, "%s", usable.error().text);
            QCCL_TRY(outcome(usable));
            if (const auto recorded = last_error_of(*usable))
                std::snprintf(last.shown, sizeof last.shown, "%s", recorded->error.text);
            return {};
        });
    return last.shown;
}
QCCL_TWIN(qcclGetLastError);

// A wrong question does not replace the error that the question is about.
qcclResult_t qcclGetErrorInfo(qcclComm_t comm, qcclErrorInfo_t *info_out) {
    return guarded([=]() -> Done {
        QCCL_TRY(const CommRef found, take_unmade_comm(comm));
        if (!info_out) return invalid_argument("info_out is NULL");
        const RecordedError none{{.code = Code::success}, {}};
        const bool has_rank = found.record().is_made().is_ok();
        const qcclErrorInfo_t info = to_info(last_error_of(found).value_or(none),
                                             has_rank ? static_cast<int32_t>(found->rank()) : -1);
        constexpr size_t first_bytes = 88; // release 0.1
        return give_struct("qcclErrorInfo_t", &info, sizeof info, first_bytes, info_out);
    });
}
QCCL_TWIN(qcclGetErrorInfo);

qcclResult_t qcclExplain(qcclComm_t comm, const char *what, char *buffer, size_t *bytes) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!what) return invalid_argument("what is NULL");
        if (!bytes) return invalid_argument("bytes is NULL");
        QCCL_TRY(const std::string text, answer(found, what));
        return give_text(text, buffer, bytes);
    });
}
QCCL_TWIN(qcclExplain);

qcclResult_t qcclCommGetStats(qcclComm_t comm, qcclCommStats_t *stats_out) {
    return ask(comm, [=](Comm &found) -> Done {
        if (!stats_out) return invalid_argument("stats_out is NULL");
        const Counts counts = found.counts();
        qcclCommStats_t stats{};
        stats.calls = counts.calls;
        stats.raw_bytes = counts.raw_bytes;
        stats.wire_bytes = counts.wire_bytes;
        stats.encode_ns = counts.encode_ns;
        stats.copy_ns = counts.copy_ns;
        stats.wait_ns = counts.wait_ns;
        stats.wire_ns = counts.wire_ns;
        stats.lent_bytes = counts.lent_bytes;
        stats.network_ns = counts.network_ns;
        stats.device_bytes = counts.device_bytes;
        stats.guarded_calls = found.guards().lossless_calls();
        constexpr size_t first_bytes = 128; // release 0.1
        return give_struct("qcclCommStats_t", &stats, sizeof stats, first_bytes, stats_out);
    });
}
QCCL_TWIN(qcclCommGetStats);
