// How fast a GPU encodes and decodes, beside a large copy within its memory in the same loop. Knows
// no command line and prints nothing.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "kernels/gpu.hpp"

#include <array>
#include <memory>
#include <vector>

namespace qccl {

enum class GpuOperation : uint8_t { copy, encode, decode, decode_add, decode_add_encode };
inline constexpr std::array<const char *, 5> gpu_operation_names{"copy", "encode", "decode",
                                                                 "decode_add", "decode_add_encode"};

struct GpuCodecSpeed {
    GpuOperation operation = GpuOperation::copy;
    double gigabytes_per_second = 0; // read and written, 1e9; median over the repetitions
    double vs_copy = 0;              // median of the ratios within a repetition
    double us = 0;                   // of one operation, the median
};

struct GpuCodecOptions {
    unsigned repetitions = 9;
    double seconds = 0.02; // at least, of each operation in a repetition
    uint64_t bytes = 0;    // of the values; 0: default_gpu_bytes
};

// Large beside a GPU's caches, and small where the CPU plays it.
uint64_t default_gpu_bytes(const GpuTraits &traits);

// One row per operation, in the order of GpuOperation, without the last where no kernel fuses it.
Result<std::vector<GpuCodecSpeed>> measure_gpu_codec(const Codec &codec, DataType type,
                                                     const std::shared_ptr<Gpu> &gpu,
                                                     const GpuCodecOptions &options);

// Of the host's memory that measuring takes, about; all is there where the CPU plays the GPU.
double gpu_codec_host_bytes(const Codec &codec, DataType type, uint64_t bytes, bool is_emulated);

} // namespace qccl
