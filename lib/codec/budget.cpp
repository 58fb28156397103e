// Reads and writes the values of the keys of a budget and of a guard; codec_spec.cpp has all other
// keys.
#include "codec/budget.hpp"

#include "base/text.hpp"
#include "codec/codec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace qccl {

namespace {

constexpr unsigned bits_decimals = 3;
constexpr uint64_t least_bits = 1000, most_bits = 64000;

// The codecs that auto may choose, in the order of the key from.
constexpr size_t auto_codecs =
    std::ranges::count_if(codec_table, [](const CodecRow &row) { return row.auto_position != 0; });
constexpr auto families = [] {
    std::array<const CodecRow *, auto_codecs> rows{};
    for (const CodecRow &row : codec_table)
        if (row.auto_position != 0) rows.at(row.auto_position - 1U) = &row;
    return rows;
}();

uint32_t bit_of(const CodecRow &row) { return 1U << static_cast<unsigned>(row.id); }

std::optional<double> parse_nmse(std::string_view text) {
    const auto nmse = parse_number<double>(text);
    if (!nmse || !std::isnormal(*nmse) || *nmse < 0 || *nmse >= 1) return std::nullopt;
    return nmse;
}

} // namespace

Done read_budget_nmse(Budget &budget, std::string_view text) {
    const auto nmse = parse_nmse(text);
    if (!nmse) return no_choice("codec: nmse", text, {budget_nmse_words});
    budget.nmse = *nmse;
    return {};
}

Done read_guard(double &nmse, std::string_view text) {
    const Parted parts = parted_at(text, ':');
    const auto number = parts.before == "nmse" ? parse_nmse(parts.behind) : std::nullopt;
    if (!number) return no_choice("codec: guard", text, {guard_words});
    nmse = *number;
    return {};
}

std::string guard_text(double nmse) { return "nmse:" + number_text(nmse); }

Done read_budget_bits(Budget &budget, std::string_view text) {
    const auto thousandths = parse_decimal(text, bits_decimals);
    if (!thousandths || *thousandths < least_bits || *thousandths > most_bits)
        return no_choice("codec: bits of auto", text, {budget_bits_words});
    budget.bits = static_cast<uint32_t>(*thousandths);
    return {};
}

Done read_budget_from(Budget &budget, std::string_view text) {
    for (Parted list{{}, text, true}; list.is_marked;) {
        list = parted_at(list.behind, '+');
        const auto family = std::ranges::find(families, list.before, &CodecRow::name);
        if (family == families.end()) {
            Names names;
            for (const CodecRow *const row : families) names.push_back(row->name);
            return no_choice("codec: from", list.before, names);
        }
        budget.from |= bit_of(**family);
    }
    return {};
}

std::string budget_text(const Budget &budget) {
    std::string text;
    const auto add = [&text](const char *key, std::string_view value) {
        text.append(text.empty() ? "" : ",").append(key).append("=").append(value);
    };
    if (budget.nmse != 0) add("nmse", number_text(budget.nmse));
    if (budget.bits != 0) add("bits", write_decimal(budget.bits, bits_decimals));
    std::string from;
    for (const CodecRow *const family : families)
        if ((budget.from & bit_of(*family)) != 0)
            from.append(from.empty() ? "" : "+").append(family->name);
    if (!from.empty()) add("from", from);
    return text;
}

} // namespace qccl
