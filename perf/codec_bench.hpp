// Measures how fast one core encodes and decodes, next to memcpy in the same loop. Used by
// qccl-perf codec and by calibration. Prints nothing. Any thread may call; a call blocks while it
// measures.
#pragma once

#include "kernels/kernels.hpp"
#include "perf/gaussian_table.hpp"

#include <array>

namespace qccl {

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

} // namespace qccl
