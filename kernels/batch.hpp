// What one launch of a GPU kernel is told: plain memory, passed by value, the same for host and
// device. A launch folds: of each tensor it reads the sources in order, combines them as a
// reduction asks, and leaves the result in a sink. Encoding is a fold of one source into a chunk,
// decoding one of a chunk into values. Knows no kernels.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "codec/noise.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace qccl {

// The sections of a chunk's payload, in their order; those of topk, which has none of the others,
// take the first places. Where nothing is raw, that is the payload's end.
enum class ChunkPart : uint8_t {
    plane8,
    plane4,
    plane2,
    plane1,
    digits,
    scales,
    bases,
    raw,
    page_counts = 0,
    indices,
    kept_values,
};
inline constexpr size_t chunk_parts = 8;

// Values in memory, or those of a chunk that have codes, from `begin` on.
struct Operand {
    CodecId codec = CodecId::none; // of codes; none: plain values, one after the other
    // Of a code. Of topk's scratch memory: which of several like launches reads it.
    uint8_t bits = 0;
    // Plain: what becomes of values beyond the type's largest, as a cast codec has it.
    bool saturates = false;
    // Sink: the scales are there already; else the launch makes them.
    bool is_measured = false;
    bool is_stochastic = false;        // sink
    bool rounds_up = false;            // sink: scales of small floats, so that no value saturates
    DataType type = DataType::float32; // plain: of the values
    uint32_t bucket = 0;               // values that share a scale; 0: all
    uint32_t clip = 0;                 // sink, terngrad: thousandths of the deviation
    std::array<uint8_t, chunk_parts> gap{};      // sink: bytes before each section that become zero
    std::byte *at = nullptr;                     // plain: the first value; else the chunk's payload
    uint64_t coded = 0;                          // codes: values of the chunk that have them
    uint64_t kept = 0;                           // topk: of those
    uint64_t begin = 0;                          // codes: place of the first value in its chunk
    std::array<uint64_t, chunk_parts> section{}; // codes: where each starts in the payload
};

struct Tensor {
    uint32_t first_source = 0, sources = 0; // in Batch::operands; the sink lies before them
    uint64_t count = 0;                     // values
    Noise noise; // first_index: of the tensor's first value, not of its chunk's
};

// Of every launch; 4096 values are one turn of a block.
inline constexpr unsigned block_threads = 256;
inline constexpr uint64_t block_values = 4096;

struct Batch {
    static constexpr size_t most_tensors = 8, most_operands = 28;

    uint32_t tensors = 0;
    RedOp op = RedOp::sum;
    uint32_t divisor = 1; // of the result, as avg asks
    // The number of the call where it changes between replays of one launch: added to the noise's.
    const uint64_t *call = nullptr;
    // Where it is given, the launch does nothing unless the word of the device's memory is this.
    const uint64_t *awaited_word = nullptr;
    uint64_t awaited = 0;
    std::array<Tensor, most_tensors> tensor{};
    std::array<Operand, most_operands> operand{};
};
// What every driver passes to a kernel by value.
static_assert(sizeof(Batch) <= 4096);

} // namespace qccl
