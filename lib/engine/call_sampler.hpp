// Reads samples of the values of calls, and measures what a codec makes of them. Used by guards and
// audits before and after calls, on the thread that makes the calls; waits for the GPU where the
// values lie in its memory, and for nothing else. The same calls give the same samples.
#pragma once

#include "codec/sampled_loss.hpp"
#include "device/gpu_device.hpp"
#include "engine/engine.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace qccl {

// How many values are read of a call, and of how many calls.
struct SampleSize {
    uint64_t values = 0; // of a call; all of a call that has fewer
    uint64_t unit = 1;   // they are read in runs of multiples of it, at multiples of it

    // Of a vector of `count` values, of whose codecs the blocks are `unit` long.
    static SampleSize of(uint64_t count, uint64_t unit, uint64_t divisor);
};

// Says of which calls of a kind samples are taken, so that no more than one value of `divisor` is
// read: of the first, and then as often as calls have had values.
class SampleTurns {
public:
    bool next(uint64_t count, const SampleSize &size, uint64_t divisor);
    uint64_t taken() const { return taken_; }

private:
    uint64_t credit_ = 0, taken_ = 0;
};

// Where the runs begin: spread over the vector, and elsewhere in each turn.
std::vector<uint64_t> sample_places(uint64_t count, const SampleSize &size, uint64_t turn);
// Values in each of them.
uint64_t run_values(uint64_t count, const SampleSize &size);

// Of the call, what this rank contributes and what it gets, where both have the same elements.
struct SampledArea {
    const std::byte *values = nullptr; // null: nothing
    uint64_t count = 0;
};
SampledArea contribution_of(const Work &work, const void *send);
SampledArea result_of(const Work &work, const void *recv);

class CallSampler {
public:
    explicit CallSampler(const Device &device) : device_(device) {}

    // Keeps copies of the area's values for `measure`. Runs with values that are not finite count
    // as zeros: what a sum makes of them no codec decides. An error is of the GPU.
    Done read(const SampledArea &area, DataType type, const SampleSize &size, uint64_t turn);
    // What encoding and decoding loses of what was read, as if it were a chunk by itself.
    SampledLoss measure(const Codec &codec);
    double square() const; // of what was read

private:
    Done gather(const SampledArea &area, uint64_t run, const std::vector<uint64_t> &places);
    Done gather_from_gpu(const std::byte *from, size_t run_bytes,
                         const std::vector<uint64_t> &places);
    void forget_infinite(uint64_t run);
    double value(const std::vector<std::byte> &values, uint64_t index) const;

    Device device_;
    DataType type_ = DataType::float32;
    uint64_t count_ = 0, turn_ = 0;
    std::vector<std::byte> values_;         // as they are
    std::vector<std::byte> wide_, decoded_; // of the accumulator's type
    std::vector<std::byte> payload_;
    std::optional<OwnStream> stream_; // of a GPU, and below
    std::optional<PinnedMemory> pinned_;
    size_t pinned_bytes_ = 0;
};

} // namespace qccl
