// Element types, reduction operations and collectives: their numbers (NCCL's), names and sizes. The
// arithmetic is in kernels/codec/number.hpp.
//
// Behind them stand sizes, for code that cuts vectors, files and messages into pieces: rounding up,
// ranges of bytes in a memory block or a file, the encoded size of a chunk (the codecs fill an
// Encoding in codec/chunk.hpp, the schedules' shapes read it), and the limits of a batch. A batch
// is several small messages between hosts that travel as one message, with an entry before each of
// them: the transport fills batches by these limits, the engine plans sends by them, and the
// planner counts by them. Pure; any thread may call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace qccl {

enum class DataType : int32_t {
    int8 = 0,
    uint8 = 1,
    int32 = 2,
    uint32 = 3,
    int64 = 4,
    uint64 = 5,
    float16 = 6,
    float32 = 7,
    float64 = 8,
    bfloat16 = 9,
    float8e4m3 = 10,
    float8e5m2 = 11,
};

enum class RedOp : int32_t { sum = 0, prod = 1, max = 2, min = 3, avg = 4 };

enum class Collective : int32_t {
    all_reduce = 0,
    reduce_scatter = 1,
    all_gather = 2,
    broadcast = 3,
    barrier = 4,
};
// All ranks make these calls together, too, but they have no algorithm. A split has a number like a
// collective. A shrink is published only if other ranks make another call instead.
inline constexpr Collective comm_split{5}, comm_shrink{6};

struct TypeInfo {
    DataType type;
    const char *name; // qccl-perf's and nccl-tests' spelling
    uint8_t bytes;
    bool is_float;
    DataType accumulator; // the type in which values are summed
};

// In the order of the numbers: the number is the index.
inline constexpr std::array<TypeInfo, 12> type_table{{
    {DataType::int8, "int8", 1, false, DataType::int8},
    {DataType::uint8, "uint8", 1, false, DataType::uint8},
    {DataType::int32, "int32", 4, false, DataType::int32},
    {DataType::uint32, "uint32", 4, false, DataType::uint32},
    {DataType::int64, "int64", 8, false, DataType::int64},
    {DataType::uint64, "uint64", 8, false, DataType::uint64},
    {DataType::float16, "half", 2, true, DataType::float32},
    {DataType::float32, "float", 4, true, DataType::float32},
    {DataType::float64, "double", 8, true, DataType::float64},
    {DataType::bfloat16, "bfloat16", 2, true, DataType::float32},
    {DataType::float8e4m3, "f8e4m3", 1, true, DataType::float32},
    {DataType::float8e5m2, "f8e5m2", 1, true, DataType::float32},
}};

inline constexpr std::array<const char *, 5> op_names{"sum", "prod", "max", "min", "avg"};
inline constexpr std::array<const char *, 5> collective_names{"all_reduce", "reduce_scatter",
                                                              "all_gather", "broadcast", "barrier"};

constexpr const TypeInfo &info(DataType type) { return type_table[static_cast<size_t>(type)]; }
constexpr size_t type_bytes(DataType type) { return info(type).bytes; }
constexpr DataType accumulator_of(DataType type) { return info(type).accumulator; }
constexpr const char *name(DataType type) { return info(type).name; }
constexpr const char *name(RedOp op) { return op_names[static_cast<size_t>(op)]; }
// The names of all calls that ranks publish.
inline constexpr std::array<const char *, 7> call_names{
    "all_reduce", "reduce_scatter", "all_gather", "broadcast",
    "barrier",    "comm_split",     "comm_shrink"};
constexpr const char *name(Collective call) { return call_names[static_cast<size_t>(call)]; }

// Converts a number that a C caller passed; nothing if the number is not valid.
constexpr std::optional<DataType> to_type(int32_t number) {
    if (number < 0 || number >= static_cast<int32_t>(type_table.size())) return std::nullopt;
    return static_cast<DataType>(number);
}
constexpr std::optional<RedOp> to_op(int32_t number) {
    if (number < 0 || number >= static_cast<int32_t>(op_names.size())) return std::nullopt;
    return static_cast<RedOp>(number);
}

// ---- Names in texts

inline std::optional<DataType> parse_type(std::string_view name) {
    for (const TypeInfo &row : type_table)
        if (name == row.name) return row.type;
    // Names that C and Python programmers try first.
    static constexpr std::pair<std::string_view, DataType> aliases[] = {
        {"fp16", DataType::float16},          {"float16", DataType::float16},
        {"fp32", DataType::float32},          {"float32", DataType::float32},
        {"fp64", DataType::float64},          {"float64", DataType::float64},
        {"bf16", DataType::bfloat16},         {"float8e4m3", DataType::float8e4m3},
        {"float8e5m2", DataType::float8e5m2},
    };
    for (const auto &[alias, type] : aliases)
        if (name == alias) return type;
    return std::nullopt;
}

inline std::optional<RedOp> parse_op(std::string_view name) {
    for (size_t i = 0; i < op_names.size(); i++)
        if (name == op_names[i]) return static_cast<RedOp>(i);
    return std::nullopt;
}

inline std::optional<Collective> parse_collective(std::string_view name) {
    if (name == "allreduce") return Collective::all_reduce;
    for (size_t i = 0; i < collective_names.size(); i++)
        if (name == collective_names[i]) return static_cast<Collective>(i);
    return std::nullopt;
}

constexpr bool reduces(Collective collective) {
    return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
}
// Whether the operation sums its operands; an average is a multiple of the sum.
constexpr bool adds(RedOp op) { return op == RedOp::sum || op == RedOp::avg; }
// Whether the vector consists of equal parts, one for each rank, and `count` is the count of a
// part.
constexpr bool has_part_per_rank(Collective collective) {
    return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}
constexpr uint32_t parts_of(Collective collective, uint32_t ranks) {
    return has_part_per_rank(collective) ? ranks : 1;
}
// Returns the count of the whole vector for a call with `count`.
constexpr uint64_t vector_count(Collective collective, uint64_t count, uint32_t ranks) {
    return count * parts_of(collective, ranks);
}

// ---- Rounding

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

// ---- Ranges of bytes

struct ByteRange {
    size_t offset = 0, bytes = 0;
};

// ---- Sizes of encoded chunks

struct Encoding {
    size_t type_bytes = 0;           // of an unencoded value
    bool needs_whole_chunks = false; // a bucket is a whole chunk: there is only one segment
    // Returns the most bytes that a chunk of up to `count` values takes, header included.
    std::function<size_t(uint64_t count)> most_bytes;
};

// ---- Limits of a batch

// A batch and its message header fit into one frame of UCX's sockets, 8 KiB. UCX makes another
// system call for every further frame.
inline constexpr uint64_t most_batch_bytes = uint64_t{7} << 10;
inline constexpr uint64_t batch_entry_bytes = 16;

// Returns how many messages of `bytes` bytes each travel in one batch; 1: each message travels
// alone. Between hosts, a message costs the processors of both ends as much as copying several
// kilobytes. If a batch holds only one such message, the message travels alone, because the rank
// encodes the next message while this one is in flight: `int8` of 64 KiB, 4.3 KB a message, takes
// the same time either way with 4 hosts at 1 Gbit/s, where `int4`, 2.4 KB a message, takes 0.9 of
// the time in batches.
constexpr uint64_t messages_per_batch(uint64_t bytes) {
    return std::max<uint64_t>(1, most_batch_bytes / (bytes + batch_entry_bytes));
}

} // namespace qccl
