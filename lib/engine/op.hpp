// Operations: what the steps of a schedule become once codec and type are known. They name operands
// without addresses. The compiler of programs writes them, and the engine executes them.
#pragma once

#include "base/types.hpp"

#include <cstdint>

namespace qccl {

// Where an operation reads or stores values.
struct OperandRef {
    enum class Kind : uint8_t {
        none,
        input,   // of the caller: chunk `index`
        output,  // of the caller: chunk `index`
        tile,    // accumulator `index` of a tile: all tiles reuse it, so it stays in the L1 cache
        segment, // accumulator `index` of the lane, as long as a segment
        payload, // payload of wire slot `index`
    };

    Kind kind = Kind::none;
    uint32_t index = 0;

    constexpr bool is(Kind k) const { return kind == k; }
    constexpr bool operator==(const OperandRef &) const = default;
};

// The codec `none` does not exist here: its payload is the values themselves, which operations copy
// and reduce in place.
struct Op {
    enum class What : uint8_t {
        copy,
        reduce,       // dst op= src
        divide,       // dst /= ranks
        write_header, // writes the header of wire slot dst
        encode,
        decode,
        decode_add,
    };

    What what = What::copy;
    bool may_stream = false; // dst is an output that no step reads
    bool is_inner = false;   // write_header, encode, decode: use the inner tiers' codec
    DataType dst_type = DataType::float32, src_type = DataType::float32; // of plain values
    OperandRef dst, src;
    uint32_t chunk = 0;
    // write_header, encode: the key of the noise. noise_rank is another rank than the program's if
    // several ranks encode the same sum with the same noise.
    uint32_t ordinal = 0, noise_rank = 0;
};

} // namespace qccl
