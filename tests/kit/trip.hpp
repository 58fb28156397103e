// Encodes and decodes fp32 values with the scalar reference, for tests that examine a codec's
// effect; and makes Gaussian values. Used by tests of codecs.
#pragma once

#include "qtest.hpp"
#include "tests/kernels/golden_cases.hpp"

#include "kernels/codec/number.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <cmath>
#include <numbers>

namespace trip {

using namespace qccl;

inline Codec parsed(const std::string &text) {
    const auto codec = parse_codec(text);
    CHECK_OK(codec);
    return *codec;
}

// The chunk and the values that come out of a codec for fp32 values.
struct Trip {
    std::vector<std::byte> chunk;
    std::vector<float> values;
};
inline Trip travel(const Codec &codec, const std::vector<float> &values, uint64_t key = 1) {
    const ChunkInfo info{DataType::float32, values.size(), 0, key, 1};
    Trip trip{golden::encode_chunk(scalar_kernels(), codec, info, DataType::float32, values.data()),
              {}};
    const auto open = open_chunk(trip.chunk, codec, DataType::float32, values.size());
    CHECK_OK(open);
    const auto decoded = golden::decode_chunk(scalar_kernels(), *open, DataType::float32);
    trip.values.resize(values.size());
    if (!decoded.empty()) std::memcpy(trip.values.data(), decoded.data(), decoded.size());
    return trip;
}

// Returns scale or minimum number `i` of a chunk of fp32 values.
template <class T> T scale_at(const Codec &codec, const Trip &trip, uint64_t i) {
    const PayloadLayout layout = payload_layout(codec, DataType::float32, trip.values.size());
    return load_bits<T>(trip.chunk.data() + header_bytes + layout.scales, i);
}

// Uses the Box-Muller method, which is accurate in the tails; a block's extremes depend on these.
inline std::vector<float> gaussian(uint64_t seed, size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) {
        const uint64_t draw = splitmix64(splitmix64(seed) + i);
        const double u = (static_cast<double>(draw >> 32) + 0.5) / 0x1p32,
                     angle = static_cast<double>(draw & 0xFFFFFFFF) / 0x1p32;
        values[i] = static_cast<float>(std::sqrt(-2 * std::log(u)) *
                                       std::cos(2 * std::numbers::pi * angle));
    }
    return values;
}

} // namespace trip
