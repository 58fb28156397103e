// Parses numbers with units, splits spec strings, words the error for an unknown name, and compares
// names by the Levenshtein distance. The parsers of numbers use no locale.
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <span>

namespace qccl {

// ---- Counts, sizes, durations and rates

std::optional<uint64_t> parse_count(std::string_view text) { return parse_number<uint64_t>(text); }

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
    const auto value = parse_number<double>(text.substr(0, number), std::chars_format::fixed);
    if (!value) return std::nullopt;
    const double bytes = std::ldexp(*value, static_cast<int>(*shift));
    if (!(bytes < 0x1p64)) return std::nullopt;
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
    const size_t power = prefix / 2 + 1; // a letter has two cases
    const double thousands = has_prefix ? std::pow(1e3, static_cast<double>(power)) : 1;
    for (const Unit &each : units) {
        const bool is_short = has_prefix && unit.empty() && &each == units; // "100G": bits
        if (unit != each.name && !is_short) continue;
        const Unit whole[] = {{text.substr(number), each.scale * thousands}};
        return parse_scaled(text, whole);
    }
    return std::nullopt;
}

std::string print_bytes(uint64_t bytes) {
    constexpr const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    for (; value >= 1024 && unit + 1 < std::size(units); unit++) value /= 1024;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g %s", value, units[unit]);
    return text.data();
}

std::string print_time(double ns) {
    constexpr const char *units[] = {"ns", "us", "ms", "s"};
    size_t unit = 0;
    for (; ns >= 1000 && unit + 1 < std::size(units); unit++) ns /= 1000;
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.3g %s", ns, units[unit]);
    return text.data();
}

// ---- Lines, words and spec strings

Parted parted_at(std::string_view text, char mark) {
    const size_t at = text.find(mark);
    if (at == text.npos) return {text, {}, false};
    return {text.substr(0, at), text.substr(at + 1), true};
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const size_t begin = text.find_first_not_of(blanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<std::string_view> words_of(std::string_view line, std::string_view separators) {
    std::vector<std::string_view> words;
    for (size_t begin = 0; (begin = line.find_first_not_of(separators, begin)) != line.npos;) {
        const size_t end = std::min(line.find_first_of(separators, begin), line.size());
        words.push_back(line.substr(begin, end - begin));
        begin = end;
    }
    return words;
}

std::string excerpt(std::string_view text) {
    constexpr size_t most_shown = 60;
    std::string shown(text.substr(0, most_shown));
    std::ranges::replace_if(
        shown, [](char c) { return c < ' ' || c > '~'; }, '?');
    return shown;
}

Done read_lines(std::string_view text, const TakeLine &take) {
    uint32_t number = 0;
    for (Parted lines{{}, text, true}; lines.is_marked;) {
        lines = parted_at(lines.behind, '\n');
        number++;
        const std::string_view line = trimmed(lines.before);
        if (line.empty() || line.starts_with('#')) continue;
        if (const Done done = take(line, number); !done)
            return Error::make(done.error().code, "line %u: %.400s", number, done.error().text);
    }
    return {};
}

std::vector<std::string> split_specs(std::string_view texts) {
    std::vector<std::string> specs;
    for (Parted list{{}, texts, true}; list.is_marked;) {
        list = parted_at(list.behind, ',');
        const std::string_view item = list.before;
        // A name ends at its ':', a key at its '='; another ':' may stand behind that.
        const size_t equals = item.find('=');
        const bool continues = equals != item.npos && equals < item.find(':');
        if (continues && !specs.empty())
            specs.back()
                .append(specs.back().find(':') == std::string::npos ? ":" : ",")
                .append(item);
        else
            specs.emplace_back(item);
    }
    return specs;
}

// ---- Names that are possible

std::string listed(const Names &names) {
    std::string list;
    for (const std::string_view name : names) list.append(list.empty() ? "" : ", ").append(name);
    return list;
}

Error no_choice(std::string_view what, std::string_view text, const Names &possible) {
    static constexpr size_t longest_shown = 40;
    return invalid_argument("%.*s is \"%.*s\"; possible %s %s", static_cast<int>(what.size()),
                            what.data(), static_cast<int>(std::min(text.size(), longest_shown)),
                            text.data(), possible.size() == 1 ? "is" : "are",
                            listed(possible).c_str());
}

// ---- Misspelt names

// Returns the Levenshtein distance: the least number of insertions, deletions and substitutions.
static size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < a.size(); i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < b.size(); j++) {
            const size_t substituted = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
        }
    }
    return row.back();
}

std::optional<std::string_view> nearest(std::string_view text, const Names &names,
                                        size_t most_edits) {
    std::optional<std::string_view> best;
    size_t fewest = most_edits;
    for (const std::string_view name : names) {
        const size_t edits = edit_distance(text, name);
        if (best ? edits >= fewest : edits > fewest) continue;
        best = name;
        fewest = edits;
    }
    return best;
}

// ---- Texts of limited length

uint64_t hash_text(std::string_view text) {
    uint64_t hash = 0xCBF29CE484222325; // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    return hash;
}

std::string shortened(std::string_view text, size_t room) {
    if (text.size() <= room) return std::string(text);
    std::array<char, 18> hash{}; // "~", 16 digits, 0
    std::snprintf(hash.data(), hash.size(), "~%016" PRIx64, hash_text(text));
    return std::string(text.substr(0, room - (hash.size() - 1))) + hash.data();
}

} // namespace qccl
