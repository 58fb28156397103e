// Measures what one encode loses of given values, with a table of kernels, in memory of the host.
// The engine's call sampler and the codecs of layers use it. It keeps its memory from one
// measurement to the next. One thread at a time; nothing blocks.
#pragma once

#include "codec/error_model.hpp"
#include "device/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

class EncodeLoss {
public:
    explicit EncodeLoss(const Kernels &kernels) : kernels_(kernels) {}

    // Encodes `count` values of `type` as one chunk, and decodes them.
    SampledLoss measure(const Codec &codec, const Noise &noise, DataType type, const void *values,
                        uint64_t count);

private:
    const Kernels &kernels_;
    std::vector<std::byte> payload_;
    std::vector<std::byte> wide_, decoded_; // in the accumulator's type
};

} // namespace qccl
