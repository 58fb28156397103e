// How fast one core encodes and decodes, beside memcpy in the same loop. Knows no command line and
// prints nothing.
#pragma once

#include "kernels/kernels.hpp"
#include "perf/gaussian_table.hpp"

#include <array>

namespace qccl {

// l2: source and destination lie within half of the second-level cache; stream: far above the
// third-level one.
enum class BenchPlace : uint8_t { l2, stream };
enum class BenchOperation : uint8_t { memcpy, encode, decode, decode_add };
inline constexpr std::array<const char *, 2> bench_place_names{"l2", "stream"};
inline constexpr std::array<const char *, 4> bench_operation_names{"memcpy", "encode", "decode",
                                                                   "decode_add"};

struct CodecSpeed {
    BenchOperation operation = BenchOperation::memcpy;
    double gigabytes_per_second = 0; // of unencoded bytes, 1e9; median over the repetitions
    double vs_memcpy = 0;            // median of the ratios within a repetition
};

struct CodecBenchOptions {
    unsigned repetitions = 15;
    double seconds = 0.002; // at least, of each operation in a repetition
    uint64_t bytes = 0;     // of the source; 0: what `place` asks for on this machine
    SourceValues values = SourceValues::normal;
};

// One row per operation, in the order of BenchOperation, each measured in every repetition.
std::array<CodecSpeed, 4> measure_codec(const Codec &codec, DataType type, const Kernels &kernels,
                                        BenchPlace place, const CodecBenchOptions &options = {});

// Of memory that measuring takes, about.
double codec_bench_bytes(const Codec &codec, DataType type, uint64_t source_bytes);

} // namespace qccl
