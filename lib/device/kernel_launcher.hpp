// Converts operations on chunks to launches of GPU kernels: which kernel, how many blocks, and
// which arguments. Operations that one kernel serves share a launch; an operation must not touch
// what another one of the same launch writes. The owner of the device provides the function that
// launches. The engine uses one launcher per stream, on one thread at a time.
//
// Plain memory starts at multiples of its values' size, payloads at multiples of 16 bytes.
#pragma once

#include "base/result.hpp"
#include "device/batch.hpp"
#include "device/kernels.hpp"

#include <optional>
#include <span>

namespace qccl {

// The most blocks of one launch. Warps take turns through rows, so a launch of fewer blocks does
// the same.
struct MostBlocks {
    unsigned of_folds; // and of all that the next member does not name
    unsigned of_topk;  // of the steps of topk

    // Returns what suits a GPU. Folds and encoders are faster if some blocks wait for others to
    // end. Each block of a step of topk begins and ends with work of its own, so these steps are
    // faster if no block waits.
    static MostBlocks of_gpu(unsigned multiprocessors) {
        return {.of_folds = 12 * multiprocessors, .of_topk = 4 * multiprocessors};
    }
    unsigned of(KernelId kernel) const {
        const bool is_of_topk = kernel >= KernelId::clear_sums && kernel < KernelId::gpu_barrier;
        return is_of_topk ? of_topk : of_folds;
    }
};

class KernelLauncher {
public:
    // Puts a kernel with `blocks` blocks of block_threads into the device's stream, and returns at
    // once.
    using Launch = Done (*)(void *device, KernelId kernel, unsigned blocks, const Batch &batch);

    // `call`, if not null, is memory of the device with a number that is added to the call number
    // of the noise when the kernel runs.
    KernelLauncher(Launch launch, void *device, const MostBlocks &most_blocks,
                   const uint64_t *call = nullptr)
        : launch_(launch), device_(device), most_blocks_(most_blocks), call_(call) {}

    // Returns true if there are GPU kernels for the codec. The calls below refuse other codecs with
    // invalid_argument.
    static bool knows(const Codec &codec);

    // Returns the bytes of device memory that encoding a chunk of `count` values needs beside
    // payload and values; 0 for most codecs.
    static size_t scratch_bytes(const Codec &codec, DataType type, uint64_t count);
    // Sets the scratch memory of later encodes, at a multiple of 16 and with any contents.
    // Successive encodes share the memory. Other launchers may use the memory only if their streams
    // follow this one's.
    void use_scratch(std::span<std::byte> scratch) { scratch_ = scratch; }

    // The same operations as in Kernels.
    Done encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                std::byte *payload);
    Done decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst);
    Done decode_add(const ChunkRange &range, RedOp op, const std::byte *payload, void *accumulator);
    // payload = encode((value op decoded `received`) / divisor) in one launch, as a hop of a ring
    // does it. `received` is a chunk of the same range. Only if can_fuse(*range.codec, range.type).
    Done decode_add_encode(const ChunkRange &range, RedOp op, uint32_t divisor,
                           const std::byte *received, DataType in, const void *src,
                           const Noise &noise, std::byte *payload);
    // `has_dither`: whether sources of the sum have dither or are rotated.
    static bool can_fuse(const Codec &codec, DataType type, bool has_dither = false);

    // The reduction of several sources, in their order. A source is values of a type, or values of
    // a chunk that either all have codes or all have none.
    struct Source {
        const ChunkRange *chunk = nullptr; // null: plain values
        DataType type = DataType::float32; // of plain values
        const std::byte *at = nullptr;
    };
    static constexpr size_t most_sources = Batch::most_operands - 1;
    struct Sum {
        RedOp op = RedOp::sum;
        uint32_t divisor = 1;
        std::span<const Source> sources;
        uint64_t count = 0;
    };
    // Stores a sum as values, or as a chunk whose values either all have codes or all have none.
    // The second form needs can_fuse.
    Done fold(const Sum &sum, DataType accumulator_type, DataType out, void *dst);
    Done fold(const Sum &sum, const ChunkRange &range, const Noise &noise, std::byte *payload);
    // Stores a sum of plain floats that is rounded once (Kernels::round_exact). All sources have
    // accumulators of one type.
    Done fold_exact(const Sum &sum, DataType out, void *dst);

    Done reduce(RedOp op, DataType accumulator_type, void *accumulator, DataType in,
                const void *src, size_t count);
    Done copy(DataType out, void *dst, DataType in, const void *src, size_t count);
    Done divide(DataType accumulator_type, void *accumulator, size_t count, uint32_t ranks);
    Done keep_error(DataType accumulator_type, void *residual, const void *values,
                    const void *decoded, size_t count, uint32_t factor, void *velocity);
    Done add_velocity(DataType accumulator_type, void *values, void *velocity, const void *before,
                      size_t count, uint32_t momentum);
    // The passes of the codec shared (shared_scales.hpp) over one part of a vector, whose blocks
    // begin at its first value. In- and output may be the same memory.
    // Makes the scales of this rank's own values.
    Done find_scales(uint16_t *scales, DataType in, const void *values, uint64_t count,
                     uint32_t block, uint32_t limit);
    // `residual`, unless it is null, receives what the roundings lose; then `in` is an
    // accumulator's type, which the residual has, too.
    Done to_integers(float *integers, DataType in, const void *values, const uint16_t *scales,
                     uint64_t count, uint32_t block, void *residual);
    Done from_integers(DataType out, void *dst, const float *sums, const uint16_t *scales,
                       uint64_t count, uint32_t block, uint32_t ranks);
    // Zeroes `words` words of 64 bits.
    Done clear(std::byte *memory, size_t words);

    // A flag barrier between GPUs: this GPU signals the others, and the others signal this one,
    // with a value that no earlier barrier of theirs has used.
    struct Barrier {
        static constexpr size_t most_others = Batch::most_operands - 3;
        uint64_t value = 0;                // not 0
        uint64_t looks = 0;                // polls after which this GPU stops waiting
        uint64_t *own_words;               // a word for each of the others, in this device's memory
        std::span<uint64_t *const> others; // their words for this device, in their memory
        // Receive the value if all have signalled, otherwise 0: in this device's memory and in the
        // host's.
        uint64_t *met, *met_on_host;
    };
    Done launch_barrier(const Barrier &barrier);
    // Later launches do nothing unless the word has this value when they run. Null: no condition.
    Done await(const uint64_t *word, uint64_t value);

    // Starts the operations gathered so far.
    Done flush();

    // Returns the bytes that kernels have read and written so far, or will have. Every operand
    // counts once per launch; an encoding in several launches counts values and payload once.
    uint64_t moved_bytes() const { return moved_bytes_; }

private:
    struct Shape { // what the tensors of a launch share
        KernelId kernel;
        RedOp op = RedOp::sum;
        uint32_t divisor = 1;
        bool operator==(const Shape &) const = default;
    };
    Done add(const Shape &shape, uint64_t count, const Noise &noise, const Operand &sink,
             std::span<const Operand> sources);
    Done add(const Shape &shape, uint64_t count, const Noise &noise, const Operand &sink,
             std::initializer_list<Operand> sources) {
        return add(shape, count, noise, sink, std::span(sources.begin(), sources.size()));
    }
    // Like add, but does not count the bytes that it moves.
    Done put(const Shape &shape, uint64_t count, const Noise &noise, const Operand &sink,
             std::span<const Operand> sources);
    Done encode_coded(const ChunkRange &range, const Noise &noise, const Operand &source,
                      std::byte *payload, uint64_t count);

    Done encode_kept(const ChunkRange &range, const Operand &source, std::byte *payload);
    Done decode_first(const ChunkRange &range, const std::byte *payload, DataType out, void *dst);

    Launch launch_;
    void *device_;
    MostBlocks most_blocks_;
    const uint64_t *call_;
    std::span<std::byte> scratch_;
    std::optional<Shape> shape_;
    uint64_t values_ = 0; // of the gathered tensors
    uint32_t operands_ = 0;
    uint64_t moved_bytes_ = 0;
    Batch batch_;
};

} // namespace qccl
