// Parses and writes counts, sizes, durations and rates.
#include "base/parse_units.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

namespace qccl {

std::optional<uint64_t> parse_count(std::string_view text) {
    uint64_t value = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value);
    if (problem != std::errc() || stop != end) return std::nullopt;
    return value;
}

std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals) {
    const size_t point = std::min(text.find('.'), text.size());
    const std::string_view behind = text.substr(std::min(point + 1, text.size()));
    // A point has digits on both sides.
    if (point == 0 || behind.size() > decimals || (point < text.size() && behind.empty()))
        return std::nullopt;
    std::string digits(text.substr(0, point));
    digits.append(behind).append(decimals - behind.size(), '0');
    return parse_count(digits);
}

std::string write_decimal(uint64_t value, unsigned decimals) {
    const std::string number = std::to_string(value);
    const size_t missing = number.size() <= decimals ? decimals + 1 - number.size() : 0;
    const std::string digits = std::string(missing, '0') + number;
    std::string text = digits.substr(0, digits.size() - decimals);
    text.append(".").append(digits, digits.size() - decimals);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
}

// Returns the exponent of 2 that a unit stands for.
static std::optional<unsigned> parse_unit(std::string_view text) {
    if (text.empty()) return 0;
    const auto power = std::string_view("KMGT").find(static_cast<char>(text[0] & ~0x20));
    const std::string_view rest = text.substr(1);
    if (power == std::string_view::npos || (!rest.empty() && rest != "B" && rest != "iB"))
        return std::nullopt;
    return static_cast<unsigned>(10 * (power + 1));
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const size_t number = std::min(text.find_first_not_of("0123456789."), text.size());
    const std::optional<unsigned> shift = parse_unit(text.substr(number));
    if (digits == 0 || !shift) return std::nullopt;
    if (digits == number) { // exact, also beyond what a double holds
        const std::optional<uint64_t> value = parse_count(text.substr(0, digits));
        if (!value || *value > UINT64_MAX >> *shift) return std::nullopt;
        return *value << *shift;
    }
    double value = 0;
    const char *const end = text.data() + number;
    const auto [stop, problem] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
    const double bytes = std::ldexp(value, static_cast<int>(*shift));
    if (problem != std::errc() || stop != end || !(bytes < 0x1p64)) return std::nullopt;
    return static_cast<uint64_t>(bytes);
}

namespace {

struct Unit {
    std::string_view name;
    double scale;
};

// At most 1e18, which rounds to an integer.
std::optional<int64_t> parse_scaled(std::string_view text, std::span<const Unit> units) {
    static constexpr double most = 1e18;

    // from_chars also takes signs, "inf" and "nan".
    if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
    double value = 0;
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
    if (problem != std::errc()) return std::nullopt;

    const std::string_view name(stop, static_cast<size_t>(end - stop));
    for (const Unit &unit : units) {
        if (unit.name != name) continue;
        const double scaled = value * unit.scale;
        if (!(scaled <= most)) return std::nullopt;
        return std::llround(scaled);
    }
    return std::nullopt;
}

} // namespace

// At most thirty years: longer than any job, and short enough that the clock plus the duration does
// not overflow.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
    static constexpr Unit units[] = {
        {"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}, {"m", 60e9}, {"h", 3600e9},
    };
    const auto ns = parse_scaled(text, units);
    if (!ns) return std::nullopt;
    return std::chrono::nanoseconds(*ns);
}

std::optional<uint64_t> parse_rate(std::string_view text) {
    static constexpr Unit units[] = {{"bit", 0.125},   {"bps", 0.125}, {"b/s", 0.125},
                                     {"bit/s", 0.125}, {"B/s", 1},     {"Bps", 1}};
    static constexpr std::string_view prefixes = "kKmMgGtT";
    const size_t number = std::min(text.find_first_not_of("0123456789."), text.size());
    std::string_view unit = text.substr(number);
    const size_t prefix = unit.empty() ? prefixes.npos : prefixes.find(unit[0]);
    const bool has_prefix = prefix != prefixes.npos;
    if (has_prefix) unit.remove_prefix(1);
    const double thousands = has_prefix ? std::pow(1e3, static_cast<double>(prefix / 2 + 1)) : 1;
    for (const Unit &each : units) {
        const bool is_short = has_prefix && unit.empty() && &each == units; // "100G": bits
        if (unit != each.name && !is_short) continue;
        const Unit whole[] = {{text.substr(number), each.scale * thousands}};
        return parse_scaled(text, whole);
    }
    return std::nullopt;
}

} // namespace qccl
