// Reads samples of the values of calls and measures the error that a codec makes on them. Guards
// and audits use it before and after calls, on the thread that makes the calls. Reading waits for
// the GPU if the values lie in GPU memory, and never for peers. The same calls give the same
// samples.
#pragma once

#include "codec/error_model.hpp"
#include "device/device.hpp"
#include "device/encode_loss.hpp"
#include "engine/run/engine.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace qccl {

// How many values a sample takes from one call, and in what units.
struct SampleSize {
    uint64_t values = 0; // per call; a call that has fewer gives all
    uint64_t unit = 1;   // runs are multiples of it, and start at multiples of it

    // Returns the size for a vector of `count` values. `unit` is the block length of the codecs;
    // `divisor` bounds the share: at most one of `divisor` values is read, except in small vectors.
    static SampleSize of(uint64_t count, uint64_t unit, uint64_t divisor);
};

// Decides which calls of a kind are sampled, so that at most one of `divisor` values is read: the
// first call, and then each time that the calls since have had enough values.
class SampleTurns {
public:
    bool next(uint64_t count, const SampleSize &size, uint64_t divisor);
    uint64_t taken() const { return taken_; }

private:
    uint64_t credit_ = 0, taken_ = 0;
};

// Returns where the runs of a sample begin: spread over the vector, and at other places in each
// turn.
std::vector<uint64_t> sample_places(uint64_t count, const SampleSize &size, uint64_t turn);
// Returns the length of each run, in values.
uint64_t run_values(uint64_t count, const SampleSize &size);

// The elements that this rank contributes to a call, or that it gets; the two functions below
// return the same elements of the tensor where a call has both.
struct SampledArea {
    const std::byte *values = nullptr; // null: the rank has none
    uint64_t count = 0;
};
SampledArea contribution_of(const Work &work, const void *send);
SampledArea result_of(const Work &work, const void *recv);

class CallSampler {
public:
    explicit CallSampler(const Device &device) : device_(device), encode_loss_(*device.kernels) {}

    // Creates what `read` needs on a GPU, as Engine::open_gpu does, for samples of up to 64 KiB.
    Done open_gpu();
    // Copies the samples of `area` for `measure`. A run that holds a value that is not finite
    // counts as zeros: no codec decides what a sum makes of such values. An error is the GPU's.
    Done read(const SampledArea &area, DataType type, const SampleSize &size, uint64_t turn);
    // Encodes and decodes the samples with `codec`, as if they were one chunk, and returns the
    // loss.
    SampledLoss measure(const Codec &codec);
    double square() const; // sum of squares of the samples

private:
    Done gather(const SampledArea &area, uint64_t run, const std::vector<uint64_t> &places);
    // Keeps at least `least` bytes pinned, and never fewer than most samples need.
    Done pin(size_t least);
    Done gather_from_gpu(const std::byte *from, size_t run_bytes,
                         const std::vector<uint64_t> &places);
    void forget_infinite(uint64_t run);
    double value(const std::vector<std::byte> &values, uint64_t index) const;

    Device device_;
    DataType type_ = DataType::float32;
    uint64_t count_ = 0, turn_ = 0;
    std::vector<std::byte> values_; // in the call's type
    std::vector<std::byte> wide_;   // in the accumulator's type
    EncodeLoss encode_loss_;
    std::optional<PinnedMemory> pinned_; // GPU only, like the member below
    size_t pinned_bytes_ = 0;
};

} // namespace qccl
