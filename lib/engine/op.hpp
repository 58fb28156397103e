// Operations: what steps become once codec and type are known. Names places, never addresses.
#pragma once

#include "base/types.hpp"

#include <cstdint>

namespace qccl {

// Where an operation finds or leaves values.
struct Place {
    enum class Kind : uint8_t {
        none,
        input,  // of the caller, chunk `index`
        output, // of the caller, chunk `index`
        tile, // accumulator `index` of a tile: used again for every tile, it stays in the L1 cache
        segment, // accumulator `index` of the lane, as long as a segment
        payload, // of wire slot `index`
    };

    Kind kind = Kind::none;
    uint32_t index = 0;

    constexpr bool is(Kind k) const { return kind == k; }
    constexpr bool operator==(const Place &) const = default;
};

// The codec `none` is gone here: its payload is the values themselves, which are copied and reduced
// where they lie.
struct Op {
    enum class What : uint8_t {
        copy,
        reduce, // dst op= src
        divide, // dst /= ranks
        label,  // writes the header of wire slot dst
        encode,
        decode,
        decode_add,
    };

    What what = What::copy;
    bool may_stream = false; // dst is an output that no step reads
    bool is_inner = false;   // label, encode, decode: by the inner tiers' codec
    DataType dst_type = DataType::float32, src_type = DataType::float32; // of plain values
    Place dst, src;
    uint32_t chunk = 0;
    // label, encode: what keys the noise. The rank is another than the program's where several
    // encode alike.
    uint32_t ordinal = 0, noise_rank = 0;
};

} // namespace qccl
