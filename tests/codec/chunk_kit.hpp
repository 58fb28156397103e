// Chunks for tests that inspect their bytes: made from golden inputs, and with damaged parts.
#pragma once

#include "tests/kernels/golden_cases.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "tests/kit/qtest.hpp"

namespace chunks {

using namespace qccl;

using Bytes = std::vector<std::byte>;

inline Codec parsed(const std::string &text) {
    const auto codec = parse_codec(text);
    CHECK_OK(codec);
    return *codec;
}

inline Bytes make_chunk(const std::string &text, DataType type, uint64_t count,
                        golden::Kind kind = golden::Kind::spread) {
    const auto input = golden::make_input(type, kind, count);
    return golden::encode_chunk(scalar_kernels(), parsed(text), golden::chunk_info(type, count),
                                type, input.data());
}

template <class T> void put(Bytes &chunk, size_t at, T value) {
    std::memcpy(chunk.data() + at, &value, sizeof value);
}

inline PayloadLayout layout_of(const std::string &text, uint64_t count) {
    return payload_layout(parsed(text), DataType::float32, count);
}

// Returns whether open_chunk accepts a chunk whose first scales are replaced.
template <class... Scale> bool accepts(const std::string &text, Scale... scale) {
    Bytes chunk = make_chunk(text, DataType::float32, 70);
    size_t at = header_bytes + layout_of(text, 70).scales;
    ((put(chunk, at, scale), at += sizeof scale), ...);
    return open_chunk(chunk).is_ok();
}

inline constexpr uint32_t nan_bits = 0x7FC00000, one = 0x3F800000, infinity = 0x7F800000, zero = 0,
                          minus = 0x80000000, most = 0x7F7FFFFF;

} // namespace chunks
