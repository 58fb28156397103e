// Operations: what the steps of a schedule become once codec and type are known. An Op names
// operands without addresses; the compiler of programs writes Ops. A TileStep is an operation with
// addresses. run_whole and run_tiles run TileSteps on the host over ranges of elements: one
// operation over all elements, or several together tile by tile, so that one finds in the L1 cache
// what the one before has left there. The task executor and the fast path use them. The caller owns
// all memory; any thread; nothing blocks.
#pragma once

#include "base/types.hpp"
#include "device/kernels.hpp"
#include "engine/compile/custom_op.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// ---- Without addresses

// Which encodes of a program leave their error in the caller's residual (WIRE.md, "State").
enum class Feedback : uint8_t {
    none,
    first, // of inputs and of sums that are not complete
    all,   // also of complete sums
};

// Where an operation reads or stores values.
struct OperandRef {
    enum class Kind : uint8_t {
        none,
        input,   // of the caller: chunk `index`
        output,  // of the caller: chunk `index`
        tile,    // accumulator `index` of a tile: all tiles reuse it, so it stays in the L1 cache
        segment, // accumulator `index` of the lane, as long as a segment
        payload, // payload of wire slot `index`
        // Of programs with feedback: a tile of what the latest encode's bytes decode to, and the
        // caller's new residual, in the order of the caller's tensor.
        decoded,
        residual,
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
        multiply,     // dst = src * the factor of the call's operation
        divide,       // dst /= ranks
        write_header, // writes the header of wire slot dst
        encode,
        decode,
        decode_add,
        begin_exact, // dst, an accumulator of exact sums, = src
        add_exact,   // dst += src
        round_exact, // dst = src, such an accumulator; divided by the ranks if is_divided
        keep_error,  // dst (residual) += (src - decoded) * ranks if src is divided, else * 1
    };

    What what = What::copy;
    bool may_stream = false; // dst is an output that no step reads
    bool is_inner = false;   // write_header, encode, decode: use the inner tiers' codec
    bool is_divided = false; // keep_error: avg has divided src; round_exact: avg divides here
    DataType dst_type = DataType::float32, src_type = DataType::float32; // of plain values
    OperandRef dst, src;
    uint32_t chunk = 0;
    // write_header, encode: the key of the noise. noise_rank is another rank than the program's if
    // several ranks encode the same sum with the same noise.
    uint32_t ordinal = 0, noise_rank = 0;
};

// ---- With addresses

// An operation with addresses. Element e of an operand lies at dst + e * dst_stride. Stride 0 marks
// an accumulator as long as a tile, which every tile starts anew. For encoded bytes the address is
// the payload's, and the stride is unused.
struct TileStep {
    Op::What what = Op::What::copy;
    bool streams = false;
    DataType dst_type = DataType::float32, src_type = DataType::float32;
    std::byte *dst = nullptr;
    const std::byte *src = nullptr;
    size_t dst_stride = 0, src_stride = 0;
    Noise noise; // encode; decode and decode_add of dither: the encoder's
    // encode, decode: set if they differ from the context's.
    const Codec *codec = nullptr;
    const PayloadLayout *layout = nullptr;
    // encode: where a tile's bytes are made before they are streamed to dst. decode, decode_add:
    // where the tile that was just made still lies. See TaskExecutor.
    std::byte *scratch = nullptr;
    // keep_error: the tile that was decoded, and by what its error is multiplied. round_exact: by
    // what the sum is divided.
    const std::byte *decoded = nullptr;
    uint32_t factor = 1;
    size_t velocity = 0; // keep_error: how many bytes behind dst the velocity is; 0: there is none
};

// What all steps on a chunk have in common.
struct TileContext {
    const Kernels *kernels = nullptr;
    const Codec *codec = nullptr;
    const PayloadLayout *layout = nullptr; // of the whole chunk; unused by plain values
    DataType type = DataType::float32;
    RedOp op = RedOp::sum;
    uint32_t ranks = 1;
    uint64_t count = 0;                // elements of the chunk
    CustomReduction *custom = nullptr; // of a custom operation
    // Of pre_mul_sum: on the host, and on a GPU, where as many factors lie as the chunk has values.
    const InputScaling *scaling = nullptr;
    const std::byte *factors = nullptr;
};

// Two operations on plain values that need no TileStep. copy_plain does nothing if the copy is in
// place.
inline void copy_plain(const Kernels &kernels, DataType dst_type, std::byte *dst, DataType src_type,
                       const std::byte *src, uint64_t count, bool streams) {
    if (dst == src && dst_type == src_type) return;
    kernels.copy(dst_type, dst, src_type, src, count, streams);
}
inline void reduce_plain(const TileContext &context, std::byte *sum, DataType src_type,
                         const std::byte *src, uint64_t count) {
    if (context.custom) return context.custom->combine(sum, src, count);
    context.kernels->reduce(context.op, accumulator_of(context.type), sum, src_type, src, count);
}

// Runs one step over the whole chunk. The step must have no scratch.
void run_whole(const TileContext &context, const TileStep &step);

// Runs all steps on a tile of `tile_count` elements, then on the next tile.
void run_tiles(const TileContext &context, std::span<const TileStep> steps, uint64_t tile_count);

} // namespace qccl
