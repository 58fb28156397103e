// The names and keys of codecs, for help texts and for lists of all codecs. Pure; any thread may
// call.
#pragma once

#include "codec/codec.hpp"

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace qccl {

// The names that specs start with, all except auto, exact and shared, which are no codecs of
// chunks.
inline constexpr auto codec_words = [] {
    constexpr size_t words = [] {
        size_t sum = 0;
        for (const CodecRow &row : codec_table)
            sum += row.bits_names.empty() ? 1 : row.bits_names.size();
        return sum;
    }();
    std::array<std::string_view, words> names{};
    size_t next = 0;
    for (const CodecRow &row : codec_table) {
        if (row.bits_names.empty()) names.at(next++) = row.name;
        for (const BitsName &word : row.bits_names) names.at(next++) = word.name;
    }
    return names;
}();

// The names and keys that parse_codec accepts, for help texts.
struct CodecName {
    std::string_view name;
    std::vector<std::string_view> keys; // the keys it takes
};
std::vector<CodecName> codec_names(); // of codec_words, and graddrop; each is a codec without keys
CodecName auto_name();
CodecName shared_name();
inline constexpr std::string_view exact_name = "exact"; // takes no keys
struct CodecKey {
    std::string_view name;
    std::vector<std::string_view> possible; // values, in words
};
std::vector<CodecKey> codec_keys();

} // namespace qccl
