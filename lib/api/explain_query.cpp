// Parses the question of qcclExplain word by word.
#include "api/explain_query.hpp"

#include "base/parse_units.hpp"

#include <algorithm>
#include <vector>

namespace qccl {

namespace {

struct Words {
    ExplainQuery question;
    std::optional<uint64_t> bytes, count;
};

Error refuse(std::string_view word) {
    return Error::make(Code::invalid_argument,
                       "what: \"%.*s\" is not understood; expected a collective (all_reduce, "
                       "reduce_scatter, all_gather, broadcast, barrier), then bytes= or count=, "
                       "type=, op=, root=, codec=, algorithm=, format=text or json",
                       static_cast<int>(std::min<size_t>(word.size(), 40)), word.data());
}

template <class Value, class Parsed> bool store(Value &value, const Parsed &parsed) {
    if (parsed) value = *parsed;
    return parsed.has_value();
}

Result<bool> take_word(std::string_view word, Words &words) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
        return store(words.question.collective, parse_collective(word));
    const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
    if (key == "bytes") return store(words.bytes, parse_bytes(value));
    if (key == "count") return store(words.count, parse_bytes(value));
    if (key == "type") return store(words.question.type, parse_type(value));
    if (key == "op") return store(words.question.op, parse_op(value));
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
        return Error::make(Code::invalid_argument, "what: %.*s= is given twice",
                           static_cast<int>(key.size()), key.data());
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
        if (!understood || is_collective != is_first) return refuse(word);
        QCCL_TRY(check_once(word, keys));
        is_first = false;
    }
    if (is_first) return refuse("");
    if (words.bytes && words.count)
        return Error::make(Code::invalid_argument,
                           "what: bytes= and count= are both there; one of them is enough");

    ExplainQuery &question = words.question;
    const uint64_t parts = parts_of(question.collective, ranks);
    question.count =
        words.count.value_or(words.bytes.value_or(0) / type_bytes(question.type) / parts);
    if (question.count > PTRDIFF_MAX / type_bytes(question.type) / parts) return refuse("count");
    return question;
}

} // namespace qccl
