// Parses and writes texts: numbers with units, spec strings ("name:key=value,key=value"), lists of
// possible names with the error for a name that is not one of them, and texts of limited length.
// Used by the parsers of settings, codecs, algorithms, plan files and topologies, and by everything
// that prints numbers. Pure; any thread may call.
//
// A parser of numbers returns nothing for text that it does not accept; the caller words the error.
// append_number writes the shortest form that reads back to the same value, independent of the
// locale. pci_address writes an address as Linux and hwloc do: "0000:1b:00.0".
#pragma once

#include "base/result.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace qccl {

// ---- Numbers to text

template <class Number, class... Base>
void append_number(std::string &text, Number value, Base... base) {
    std::array<char, 32> digits;
    const auto end = std::to_chars(digits.begin(), digits.end(), value, base...).ptr;
    text.append(digits.begin(), end);
}

template <class Number> std::string number_text(Number value) {
    std::string text;
    append_number(text, value);
    return text;
}

// Appends one line, or a part of one, as printf formats it: at most 319 characters.
template <class... Arguments>
void append_format(std::string &text, const char *format, Arguments... arguments) {
    std::array<char, 320> line;
    std::snprintf(line.data(), line.size(), format, arguments...);
    text += line.data();
}

// ---- Counts, sizes, durations and rates

// Returns the number that the whole text is, as std::from_chars has it: without a plus or space in
// front. Floating point may be "inf" or "nan". `how`: the base of an integer, or the format of
// floating point.
template <class Number, class... How>
std::optional<Number> parse_number(std::string_view text, How... how) {
    Number value{};
    const char *const end = text.data() + text.size();
    const auto [stop, problem] = std::from_chars(text.data(), end, value, how...);
    if (problem != std::errc() || stop != end) return std::nullopt;
    return value;
}

// Accepts digits only.
std::optional<uint64_t> parse_count(std::string_view text);
// Returns a number without sign as a multiple of its smallest decimal: "2.5" with three decimals is
// 2500. A number with more decimals than that is refused.
std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals);
// Returns the shortest text that parse_decimal reads back to the same value.
std::string write_decimal(uint64_t value, unsigned decimals);
// "4096", "64K", "1MiB", "2g", "1.5M": units are powers of 1024, and a fraction of a byte is cut
// off, as in nccl-tests.
std::optional<uint64_t> parse_bytes(std::string_view text);
// "30", "1.5s", "20us", "10ms", "2m", "1h": a number without a unit counts seconds.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
// "10gbit", "100G", "2.5Gbps", "100Mb/s": bits a second. "12.5GB/s", "12.5GBps": bytes a second,
// which have a capital B. Units are powers of 1000. Returns bytes a second.
std::optional<uint64_t> parse_rate(std::string_view text);

// Return a size and a time as people read them: "1.5 MiB", "12.3 us".
std::string print_bytes(uint64_t bytes);
std::string print_time(double ns);
inline std::string print_time(std::chrono::nanoseconds time) {
    return print_time(static_cast<double>(time.count()));
}

// ---- Lines, words and spec strings

struct Parted {
    std::string_view before, behind;
    bool is_marked; // false: there was no mark, and `before` is the whole text
};

// Splits the text at the first `mark`.
Parted parted_at(std::string_view text, char mark);

// Returns the text without the blanks at its ends.
std::string_view trimmed(std::string_view text);
// Returns the words between separators; several separators in a row count as one.
std::vector<std::string_view> words_of(std::string_view line, std::string_view separators = " \t");
// Returns the beginning of a text from outside with all unprintable characters replaced, so that a
// message can show it.
std::string excerpt(std::string_view text);

// Calls `take` for each line, without the blanks at its ends; lines are numbered from 1. Blank
// lines and comments (lines that begin with '#') are skipped. The first error ends the loop and is
// returned with the line's number.
using TakeLine = std::function<Done(std::string_view line, uint32_t number)>;
Done read_lines(std::string_view text, const TakeLine &take);

// Splits a list at its commas into specs as they were written. An item with a key and no name
// continues the spec before it.
std::vector<std::string> split_specs(std::string_view texts);

// ---- Names that are possible

using Names = std::vector<std::string_view>;

// Returns the names in the rows of a table.
template <class Table> Names names_of(const Table &table) {
    Names names;
    for (const auto &row : table) names.push_back(row.name);
    return names;
}

// Returns the names separated by commas: "ring, direct, oneshot".
std::string listed(const Names &names);

// Returns invalid_argument with a sentence such as `algorithm is "star"; possible are ring, direct,
// oneshot`. `what` names the thing that was read. At most 40 characters of `text` are shown, so
// that the rest of the sentence fits.
Error no_choice(std::string_view what, std::string_view text, const Names &possible);

// ---- Misspelt names

// Returns the name with the smallest edit distance (insertions, deletions and substitutions) to
// `text`; nothing if that distance exceeds `most_edits`.
std::optional<std::string_view> nearest(std::string_view text, const Names &names,
                                        size_t most_edits);

// ---- Texts of limited length

// Returns the same hash on every rank, whatever its standard library.
uint64_t hash_text(std::string_view text);

// Returns the text unchanged if it has at most `room` characters (17 or more); else its beginning
// and a hash of the whole text, `room` characters together.
std::string shortened(std::string_view text, size_t room);

// ---- PCI addresses

inline std::string pci_address(unsigned domain, unsigned bus, unsigned device,
                               unsigned function = 0) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%04x:%02x:%02x.%x", domain, bus, device, function);
    return text.data();
}

} // namespace qccl
