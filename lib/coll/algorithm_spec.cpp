// Parses and writes the spec strings of algorithms.
#include "coll/algorithm.hpp"

#include "base/spec_text.hpp"

#include <algorithm>

namespace qccl {

namespace {

template <class Row> const Row *find(std::span<const Row> rows, std::string_view name) {
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const Row &row) { return row.name == name; });
    return found == rows.end() ? nullptr : &*found;
}

Done read_key(const AlgorithmRow &row, std::string_view item, const std::string &who,
              Choices &choices, uint32_t &given) {
    const auto [name, word, has_word] = parted_at(item, '=');
    const AlgorithmKey *const key = find(row.keys, name);
    if (!key) return no_choice(who + ": key of " + std::string(row.name), name, names_of(row.keys));
    const auto number = static_cast<uint32_t>(key - row.keys.data());
    if (!has_word)
        return Error::make(Code::invalid_argument, "%s: %s has no value; write %s=VALUE",
                           who.c_str(), key->name.data(), key->name.data());
    if ((given >> number & 1U) != 0)
        return Error::make(Code::invalid_argument, "%s: %s is given twice", who.c_str(),
                           key->name.data());
    given |= 1U << number;
    const auto found = std::find(key->words.begin(), key->words.end(), word);
    if (found == key->words.end())
        return no_choice(who + ": " + std::string(name), word,
                         Names(key->words.begin(), key->words.end()));
    choices[number] = static_cast<uint8_t>(found - key->words.begin());
    return {};
}

} // namespace

Result<Algorithm> parse_algorithm(std::string_view text, std::string_view who,
                                  const Names &besides) {
    const auto [word, keys, has_keys] = parted_at(text, ':');
    const AlgorithmRow *const row = find(algorithm_table(), word);
    const std::string asker(who);
    if (!row) {
        Names possible = names_of(algorithm_table());
        possible.insert(possible.end(), besides.begin(), besides.end());
        return no_choice(who, word, possible);
    }
    if (!has_keys) return Algorithm(*row);
    if (row->keys.empty())
        return Error::make(Code::invalid_argument, "%s: %s takes no keys", asker.c_str(),
                           row->name.data());
    Choices choices{};
    uint32_t given = 0;
    for (Parted list{{}, keys, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        QCCL_TRY(read_key(*row, list.before, asker, choices, given));
    }
    return Algorithm(*row, choices);
}

std::string spec(const Algorithm &algorithm) {
    std::string text(algorithm.name());
    char mark = ':';
    const auto keys = algorithm.row().keys;
    for (size_t i = 0; i < keys.size(); i++) {
        const uint8_t chosen = algorithm.choices()[i];
        if (chosen == 0) continue;
        text.append(1, mark).append(keys[i].name).append("=").append(keys[i].words[chosen]);
        mark = ',';
    }
    return text;
}

} // namespace qccl
