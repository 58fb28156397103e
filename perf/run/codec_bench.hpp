// Measures how fast one core encodes and decodes, next to memcpy in the same loop, and how fast a
// GPU does, next to a large copy within its memory; generates the values for both. Used by
// qccl-perf codec and by calibration. Prints nothing. Any thread may call; a call blocks while it
// measures.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "device/gpu.hpp"
#include "device/kernels.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

namespace qccl {

// ---- Values

// normal: like gradients. even: with uniformly distributed values `topk` takes longest to find its
// threshold.
enum class SourceValues : uint8_t { normal, even };

// Fills `dst` with `count` values by repeating a table of such values.
void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count,
                 SourceValues values = SourceValues::normal);

// ---- One core

// l2: source and destination fit in half of the second-level cache. stream: both are far larger
// than the third-level cache.
enum class BenchPlace : uint8_t { l2, stream };
enum class BenchOperation : uint8_t { memcpy, encode, decode, decode_add };
inline constexpr std::array<const char *, 2> bench_place_names{"l2", "stream"};
inline constexpr std::array<const char *, 4> bench_operation_names{"memcpy", "encode", "decode",
                                                                   "decode_add"};

struct CodecSpeed {
    BenchOperation operation = BenchOperation::memcpy;
    double gigabytes_per_second = 0; // 1e9 unencoded bytes/s; median of the repetitions
    double vs_memcpy = 0;            // median of the ratios within a repetition
};

struct CodecBenchOptions {
    unsigned repetitions = 15;
    double seconds = 0.002; // minimum time for each operation in a repetition
    uint64_t bytes = 0;     // size of the source; 0: as `place` requires on this machine
    SourceValues values = SourceValues::normal;
};

// Returns one row per operation, in the order of BenchOperation. Every repetition measures every
// operation.
std::array<CodecSpeed, 4> measure_codec(const Codec &codec, DataType type, const Kernels &kernels,
                                        BenchPlace place, const CodecBenchOptions &options = {});

// Returns roughly how many bytes of memory a measurement needs.
double codec_bench_bytes(const Codec &codec, DataType type, uint64_t source_bytes);

// ---- A GPU

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
    double seconds = 0.02; // minimum time for each operation in a repetition; not if emulated
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
