// The argument of one GPU kernel launch: plain data, passed by value, identical on host and device.
// KernelLauncher fills batches and the kernels read them.
//
// A launch folds: for each tensor the kernel reads the sources in order, combines them with the
// reduction operation and writes the result to a sink. Encoding folds one source of values into a
// chunk. Decoding folds one chunk into values.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace qccl {

// The sections of a chunk's payload, in payload order. topk has none of the other codecs' sections,
// so its own sections use the first numbers. If no value is raw, `raw` is the payload's end.
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

// Values in memory, or the coded values of a chunk, starting at `begin`.
struct Operand {
    CodecId codec = CodecId::none; // codes: their codec; none: contiguous plain values
    // Bits of a code. topk's scratch memory: number that tells launches of the same kernel apart.
    uint8_t bits = 0;
    // Plain sink: values beyond the type's largest value saturate, as a cast codec requires.
    bool saturates = false;
    // Sink: the scales are already in the payload; otherwise this launch computes them.
    bool is_measured = false;
    bool is_stochastic = false; // sink: rounds with noise
    bool rounds_up = false;   // sink: rounds scales of small floats up, so that no value saturates
    uint8_t bucket_shift = 0; // log2(bucket) if that is a whole number above 0, else 0
    DataType type = DataType::float32; // plain: type of the values
    uint32_t bucket = 0;               // values that share a scale; 0: all values
    uint32_t clip = 0; // sink, terngrad: clip limit, in thousandths of the deviation
    std::array<uint8_t, chunk_parts> gap{}; // sink: bytes to zero before each section
    std::byte *at = nullptr;                // plain: the first value; otherwise the chunk's payload
    uint64_t coded = 0;                     // codes: number of the chunk's values that have codes
    uint64_t kept = 0;                      // topk: number of those that the chunk keeps
    uint64_t begin = 0;                     // codes: index of the first value in its chunk
    std::array<uint64_t, chunk_parts> section{}; // codes: offset of each section in the payload
};

struct Tensor {
    uint32_t first_source = 0, sources = 0; // in Batch::operand; the sink lies before the sources
    uint64_t count = 0;                     // values
    Noise noise; // first_index is that of the tensor's first value, not of its chunk's
};

// Threads per block of every launch, and the values that a block folds in one turn.
inline constexpr unsigned block_threads = 256;
inline constexpr uint64_t block_values = 4096;

struct Batch {
    static constexpr size_t most_tensors = 8, most_operands = 28;

    uint32_t tensors = 0;
    RedOp op = RedOp::sum;
    uint32_t divisor = 1; // divides the result, for avg
    // Device memory with a call number that changes between replays of one launch. The kernel adds
    // it to the noise's call number. Null: nothing is added.
    const uint64_t *call = nullptr;
    // If set, the launch does nothing unless this word of device memory equals `awaited`.
    const uint64_t *awaited_word = nullptr;
    uint64_t awaited = 0;
    std::array<Tensor, most_tensors> tensor{};
    std::array<Operand, most_operands> operand{};
};
// Every driver passes this many bytes to a kernel by value.
static_assert(sizeof(Batch) <= 4096);

} // namespace qccl
