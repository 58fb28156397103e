// From operations on chunks to launches of GPU kernels: which kernel, how many blocks, and what it
// is told. Operations that one kernel serves go together in one launch; those of one launch must
// not touch what another of them writes. Knows no device: whoever has one says how to launch.
//
// Plain memory starts at multiples of its values' size, payloads at multiples of 16.
#pragma once

#include "base/result.hpp"
#include "kernels/batch.hpp"
#include "kernels/kernel_list.hpp"
#include "kernels/kernels.hpp"

#include <optional>
#include <span>

namespace qccl {

class Launches {
public:
    // Launches on the stream and returns; blocks of block_threads.
    using Launch = Done (*)(void *device, KernelId kernel, unsigned blocks, const Batch &batch);

    // At most `most_blocks` to a launch. `call`, where it is given, is memory of the device whose
    // number is added to that of the noise when the kernel runs.
    Launches(Launch launch, void *device, unsigned most_blocks, const uint64_t *call = nullptr)
        : launch_(launch), device_(device), most_blocks_(most_blocks), call_(call) {}

    // Whether there are GPU kernels for it; the calls below refuse any other.
    static bool knows(const Codec &codec);

    // What encoding a chunk of so many values takes of the device's memory, beside payload and
    // values; of most codecs nothing.
    static size_t scratch_bytes(const Codec &codec, DataType type, uint64_t count);
    // Memory for that, from here on, at a multiple of 16; anything may lie in it. One encode after
    // the other has it, those of other Launches only where their streams follow each other.
    void use_scratch(std::span<std::byte> scratch) { scratch_ = scratch; }

    // As in Kernels.
    Done encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                std::byte *payload);
    Done decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst);
    Done decode_add(const ChunkRange &range, RedOp op, const std::byte *payload, void *accumulator);
    // payload = encoded (value op what `received`, of the same range, decodes to) / divisor, as a
    // hop of a ring does it, in one launch. Only where can_fuse(*range.codec, range.type).
    Done decode_add_encode(const ChunkRange &range, RedOp op, uint32_t divisor,
                           const std::byte *received, DataType in, const void *src,
                           const Noise &noise, std::byte *payload);
    static bool can_fuse(const Codec &codec, DataType type);

    // What several sources come to, in their order: each values of a type, or those of a chunk that
    // all have codes or none of which has.
    struct Source {
        const ChunkRange *chunk = nullptr; // null: plain values
        DataType type = DataType::float32; // of those
        const std::byte *at = nullptr;
    };
    static constexpr size_t most_sources = Batch::most_operands - 1;
    struct Sum {
        RedOp op = RedOp::sum;
        uint32_t divisor = 1;
        std::span<const Source> sources;
        uint64_t count = 0;
    };
    // As values, and as a chunk whose values all have codes or none of which has, where can_fuse.
    Done fold(const Sum &sum, DataType accumulator_type, DataType out, void *dst);
    Done fold(const Sum &sum, const ChunkRange &range, const Noise &noise, std::byte *payload);

    Done reduce(RedOp op, DataType accumulator_type, void *accumulator, DataType in,
                const void *src, size_t count);
    Done copy(DataType out, void *dst, DataType in, const void *src, size_t count);
    Done divide(DataType accumulator_type, void *accumulator, size_t count, uint32_t ranks);

    // GPUs that meet: this one tells the others, and is told by them, a value that none of them has
    // been told before.
    struct Meeting {
        static constexpr size_t most_others = Batch::most_operands - 3;
        uint64_t value = 0;                // not 0
        uint64_t looks = 0;                // for how many this one waits
        uint64_t *own_words;               // a word for each of the others, in this device's memory
        std::span<uint64_t *const> others; // words for this one, in their devices' memory
        // The value if all have come, else 0: in this device's memory and in the host's.
        uint64_t *met, *met_on_host;
    };
    Done meet(const Meeting &meeting);
    // What is launched from here on does nothing unless the word is the value then; null: whatever
    // it is.
    Done await(const uint64_t *word, uint64_t value);

    // Launches what has been gathered.
    Done flush();

    // That kernels have read and written so far, or will have: every operand once per launch; of an
    // encoding in several launches values and payload once.
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
    // Without counting what it moves.
    Done put(const Shape &shape, uint64_t count, const Noise &noise, const Operand &sink,
             std::span<const Operand> sources);
    Done encode_coded(const ChunkRange &range, const Noise &noise, const Operand &source,
                      std::byte *payload, uint64_t count);

    Done encode_kept(const ChunkRange &range, const Operand &source, std::byte *payload);

    Launch launch_;
    void *device_;
    unsigned most_blocks_;
    const uint64_t *call_;
    std::span<std::byte> scratch_;
    std::optional<Shape> shape_;
    uint64_t values_ = 0; // of the tensors gathered
    uint32_t operands_ = 0;
    uint64_t moved_bytes_ = 0;
    Batch batch_;
};

} // namespace qccl
