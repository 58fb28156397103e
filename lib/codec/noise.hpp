// Which noise the stochastic rounding and the dither of a chunk draw (WIRE.md, Noise): a key, mixed
// from the seed, the encoding rank and the encode's ordinal, and the position of the draws select
// it. kernels/codec/code_rounding.hpp generates the draws. Used by engine and kernels. Pure; any
// thread may call.
#pragma once

#include <cstdint>

namespace qccl {

// The noise of one chunk; nearest rounding does not use it. Decoders use that of dither.
struct Noise {
    uint64_t key = 0;
    uint64_t call = 0;
    uint64_t first_index = 0; // of the chunk's first element in the caller's tensor
};

// A bijection of 64 bits: one step of SplitMix64 (Steele, Lea and Flood, OOPSLA'14).
constexpr uint64_t splitmix64(uint64_t x) {
    x += 0x9E3779B97F4A7C15ULL;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    return x ^ x >> 31;
}

// Returns the noise key of an encode. `ordinal` counts the encode steps of `rank` in the unshaped
// schedule. Both steps are bijections: under one seed no two (rank, ordinal) share a key.
constexpr uint64_t noise_key(uint64_t seed, uint32_t rank, uint32_t ordinal) {
    return splitmix64(splitmix64(seed) ^ (uint64_t{rank} << 32 | ordinal));
}

} // namespace qccl
