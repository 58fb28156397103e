// The keys of spec strings, and sets of them. The table of codecs (codec.hpp) says which keys each
// codec takes. Pure; any thread may call.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace qccl {

// The keys of spec strings; key_table (codec_spec.cpp) has their names and values.
enum class SpecKey : uint8_t {
    bits,
    bucket,
    block,
    round,
    seed,
    min,
    skip_incomplete,
    scale,
    norm,
    levels,
    clip,
    ratio,
    momentum,
    warmup,
    entropy,
    rotate,
    threshold,
    abs,
    rel,
    pw,
    nmse,
    most_bits,
    from,
    guard,
    owner,
};
// A bit set of keys.
using SpecKeys = uint32_t;
constexpr SpecKeys key_bit(SpecKey key) { return 1U << static_cast<unsigned>(key); }
constexpr SpecKeys key_bits(std::initializer_list<SpecKey> keys) {
    SpecKeys bits = 0;
    for (const SpecKey key : keys) bits |= key_bit(key);
    return bits;
}

} // namespace qccl
