// Measures how fast a GPU encodes and decodes, next to a large copy within its memory in the same
// loop. Used by qccl-perf codec. Prints nothing. A call blocks while it measures.
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
    double gigabytes_per_second = 0; // 1e9 bytes/s read and written; median of the repetitions
    double vs_copy = 0;              // median of the ratios within a repetition
    double us = 0;                   // median time of one operation
};

struct GpuCodecOptions {
    unsigned repetitions = 9;
    double seconds = 0.02; // minimum time for each operation in a repetition
    uint64_t bytes = 0;    // size of the values; 0: default_gpu_bytes
};

// Returns a size that is large compared with a GPU's caches, and small for a GPU that the CPU
// emulates.
uint64_t default_gpu_bytes(const GpuTraits &traits);

// Returns one row per operation, in the order of GpuOperation. The last operation is missing if no
// kernel fuses it.
Result<std::vector<GpuCodecSpeed>> measure_gpu_codec(const Codec &codec, DataType type,
                                                     const std::shared_ptr<Gpu> &gpu,
                                                     const GpuCodecOptions &options);

// Returns roughly how many bytes of host memory a measurement needs. An emulated GPU keeps all its
// memory on the host.
double gpu_codec_host_bytes(const Codec &codec, DataType type, uint64_t bytes, bool is_emulated);

} // namespace qccl
