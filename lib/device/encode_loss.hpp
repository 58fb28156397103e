// Measures what one encode loses of given values, with a table of kernels, in memory of the host.
// The engine's call sampler and the codecs of layers use it. It keeps its memory from one
// measurement to the next. One thread at a time; nothing blocks.
#pragma once

#include "codec/error_model.hpp"
#include "device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace qccl {

class EncodeLoss {
public:
    explicit EncodeLoss(const Kernels &kernels) : kernels_(kernels) {}

    // Takes the values that `measure` encodes. The caller keeps them meanwhile.
    void read(DataType type, const void *values, uint64_t count);
    // Encodes the values as one chunk, and decodes them.
    SampledLoss measure(const Codec &codec, const Noise &noise);
    // Returns the bytes of that chunk's payload, packed if the codec packs.
    size_t payload_bytes(const Codec &codec);

private:
    const Kernels &kernels_;
    DataType type_ = DataType::float32;
    const void *values_ = nullptr;
    uint64_t count_ = 0;
    std::vector<std::byte> payload_;
    std::vector<std::byte> wide_, decoded_; // in the accumulator's type
    std::vector<std::byte> packed_;
    std::unique_ptr<PackScratch> scratch_; // made when it is first needed
};

} // namespace qccl
