// Parses and writes the keys of a codec's budget and of its guard.
#include "codec/budget.hpp"

#include "base/choice.hpp"
#include "base/parse_units.hpp"
#include "base/spec_text.hpp"
#include "codec/codec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace qccl {
namespace {

constexpr unsigned bits_decimals = 3;
constexpr uint64_t least_bits = 1000, most_bits = 64000;

struct CodecGroup {
    std::string_view name;
    CodecId id;

    uint32_t bit() const { return 1U << static_cast<unsigned>(id); }
};
constexpr CodecGroup families[] = {{"int", CodecId::integer},
                                   {"minmax", CodecId::minmax},
                                   {"nvfp4", CodecId::nvfp4},
                                   {"bf16", CodecId::bf16}};

std::optional<double> parse_nmse(std::string_view text) {
    double nmse = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, nmse);
    if (problem != std::errc() || stop != end || !std::isnormal(nmse) || nmse < 0 || nmse >= 1)
        return std::nullopt;
    return nmse;
}

std::string shortest_text(double number) {
    char text[32];
    return {text, std::to_chars(text, std::end(text), number).ptr};
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

std::string guard_text(double nmse) { return "nmse:" + shortest_text(nmse); }

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
        const auto *const family = std::ranges::find(families, list.before, &CodecGroup::name);
        if (family == std::end(families))
            return no_choice("codec: from", list.before, names_of(families));
        budget.from |= family->bit();
    }
    return {};
}

std::string budget_text(const Budget &budget) {
    std::string text;
    const auto add = [&text](const char *key, std::string_view value) {
        text.append(text.empty() ? "" : ",").append(key).append("=").append(value);
    };
    if (budget.nmse != 0) add("nmse", shortest_text(budget.nmse));
    if (budget.bits != 0) add("bits", write_decimal(budget.bits, bits_decimals));
    std::string from;
    for (const CodecGroup &family : families)
        if ((budget.from & family.bit()) != 0)
            from.append(from.empty() ? "" : "+").append(family.name);
    if (!from.empty()) add("from", from);
    return text;
}

} // namespace qccl
