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
#include <limits>
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
    reduce = 7, // 5 and 6 are below
    gather = 8,
    scatter = 9,
    all_to_all = 10,
    scan = 11,
    exscan = 12,
    send = 13, // the other end calls receive
};
// All ranks make these calls together, too, but they have no algorithm. A split has a number like a
// collective. A shrink is published only if other ranks make another call instead.
inline constexpr Collective comm_split{5}, comm_shrink{6};
// The v-forms of collectives: each part has a count of its own. They run the schedules of the
// collectives whose forms they are.
inline constexpr Collective all_gather_v{14}, reduce_scatter_v{15}, gather_v{16}, scatter_v{17},
    all_to_all_v{18};

// The numbers of a floating-point format: zero, powers of two and the multiples between them.
struct FloatFormat {
    int fraction_bits = 0;
    int lowest = 0, highest = 0; // exponents of the smallest normal number and of the largest one
    double largest = 0;          // the largest finite number

    // Exponent of the smallest number above zero, a subnormal.
    constexpr int smallest() const { return lowest - fraction_bits; }
    bool operator==(const FloatFormat &) const = default;
};

// Everything that is asked about a type, one row a type.
struct TypeInfo {
    DataType type;
    const char *name; // qccl-perf's and nccl-tests' spelling
    uint8_t bytes;
    DataType accumulator; // the type in which values are summed
    bool is_float = false;
    FloatFormat format = {}; // of a float; kernels/codec/number.hpp has the bit patterns
    // Names that C and Python programmers try first; the second may be empty.
    std::array<std::string_view, 2> aliases = {};
};

// In the order of the numbers: the number is the index.
inline constexpr auto type_table = std::to_array<TypeInfo>({
    {DataType::int8, "int8", 1, DataType::int8},
    {DataType::uint8, "uint8", 1, DataType::uint8},
    {DataType::int32, "int32", 4, DataType::int32},
    {DataType::uint32, "uint32", 4, DataType::uint32},
    {DataType::int64, "int64", 8, DataType::int64},
    {DataType::uint64, "uint64", 8, DataType::uint64},
    {DataType::float16,
     "half",
     2,
     DataType::float32,
     true,
     {10, -14, 15, 65504},
     {"fp16", "float16"}},
    {DataType::float32,
     "float",
     4,
     DataType::float32,
     true,
     {23, -126, 127, std::numeric_limits<float>::max()},
     {"fp32", "float32"}},
    {DataType::float64,
     "double",
     8,
     DataType::float64,
     true,
     {52, -1022, 1023, std::numeric_limits<double>::max()},
     {"fp64", "float64"}},
    {DataType::bfloat16,
     "bfloat16",
     2,
     DataType::float32,
     true,
     {7, -126, 127, 0x1.FEp127},
     {"bf16"}},
    {DataType::float8e4m3, "f8e4m3", 1, DataType::float32, true, {3, -6, 8, 448}, {"float8e4m3"}},
    {DataType::float8e5m2,
     "f8e5m2",
     1,
     DataType::float32,
     true,
     {2, -14, 15, 57344},
     {"float8e5m2"}},
});
// Whether row i of a table has the number i.
template <class Row, size_t rows, class Number>
constexpr bool is_in_order(const std::array<Row, rows> &table, Number Row::*number) {
    for (size_t i = 0; i < rows; i++)
        if (static_cast<size_t>(table[i].*number) != i) return false;
    return true;
}
static_assert(is_in_order(type_table, &TypeInfo::type));

inline constexpr std::array<const char *, 5> op_names{"sum", "prod", "max", "min", "avg"};

// Whose values a rank's result covers, in the order of the ranks.
enum class Covers : uint8_t { all_ranks, up_to_own, before_own };

// Everything that is asked about a call that all ranks make together, one row a call. A field
// without a default is one that every row states.
struct CollectiveRow {
    Collective collective;
    const char *name;
    bool is_scheduled;           // algorithms have schedules for it
    bool has_values;             // it has a count, a type and buffers
    bool reduces;                // results are reductions of the values of ranks
    Covers covers;               // of reductions: of which ranks
    bool scatters;               // a rank's result is its own part of the vector
    bool gathers;                // a rank contributes its own part of the vector
    bool exchanges;              // every rank has a part of its own for every rank
    bool has_root;               // the caller names a rank
    bool has_one_source;         // only the root contributes values
    bool has_one_result;         // only the root has a result
    bool moves_on;               // only the rank after the root has a result: the root's values
    bool needs_all_ranks;        // no rank is done before every rank has begun
    std::string_view alias = {}; // a second name that texts may use
    // The collective of which this is the v-form; empty: it is no v-form.
    std::optional<Collective> v_form_of = std::nullopt;
};

inline constexpr auto collectives_without_v_forms = std::to_array<CollectiveRow>({
    {.collective = Collective::all_reduce,
     .name = "all_reduce",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true,
     .alias = "allreduce"},
    {.collective = Collective::reduce_scatter,
     .name = "reduce_scatter",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = true,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::all_gather,
     .name = "all_gather",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = true,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::broadcast,
     .name = "broadcast",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::barrier,
     .name = "barrier",
     .is_scheduled = true,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = comm_split,
     .name = "comm_split",
     .is_scheduled = false,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = comm_shrink,
     .name = "comm_shrink",
     .is_scheduled = false,
     .has_values = false,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true},
    {.collective = Collective::reduce,
     .name = "reduce",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = false,
     .has_one_result = true,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::gather,
     .name = "gather",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = true,
     .exchanges = false,
     .has_root = true,
     .has_one_source = false,
     .has_one_result = true,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::scatter,
     .name = "scatter",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = true,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::all_to_all,
     .name = "all_to_all",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = true,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = true,
     .alias = "alltoall"},
    {.collective = Collective::scan,
     .name = "scan",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::up_to_own,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::exscan,
     .name = "exscan",
     .is_scheduled = true,
     .has_values = true,
     .reduces = true,
     .covers = Covers::before_own,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = false,
     .has_one_source = false,
     .has_one_result = false,
     .moves_on = false,
     .needs_all_ranks = false},
    {.collective = Collective::send,
     .name = "send",
     .is_scheduled = true,
     .has_values = true,
     .reduces = false,
     .covers = Covers::all_ranks,
     .scatters = false,
     .gathers = false,
     .exchanges = false,
     .has_root = true,
     .has_one_source = true,
     .has_one_result = false,
     .moves_on = true,
     .needs_all_ranks = false},
});

// The row of a v-form is that of the collective, but for what is stated here.
struct VForm {
    Collective collective;
    const char *name;
    Collective of;
};
inline constexpr auto v_forms =
    std::to_array<VForm>({{all_gather_v, "all_gather_v", Collective::all_gather},
                          {reduce_scatter_v, "reduce_scatter_v", Collective::reduce_scatter},
                          {gather_v, "gather_v", Collective::gather},
                          {scatter_v, "scatter_v", Collective::scatter},
                          {all_to_all_v, "all_to_all_v", Collective::all_to_all}});

// In the order of the numbers: the number is the index.
inline constexpr auto collective_table = [] {
    std::array<CollectiveRow, collectives_without_v_forms.size() + v_forms.size()> table{};
    auto *next = std::ranges::copy(collectives_without_v_forms, table.begin()).out;
    for (const VForm &form : v_forms) {
        *next = collectives_without_v_forms.at(static_cast<size_t>(form.of));
        next->collective = form.collective;
        next->name = form.name;
        next->is_scheduled = false;
        next->alias = {};
        next->v_form_of = form.of;
        next++;
    }
    return table;
}();
static_assert(is_in_order(collective_table, &CollectiveRow::collective));

constexpr const CollectiveRow &row_of(Collective collective) {
    return collective_table[static_cast<size_t>(collective)];
}

// Whether every rank knows the counts of all parts of the v-form. Of the others a rank knows those
// of the parts that it sends or receives.
constexpr bool are_counts_common(Collective v_form) {
    return !row_of(v_form).exchanges && !row_of(v_form).has_root;
}

// Returns the collectives of which `is_one` is true, in the order of their numbers.
template <auto is_one> constexpr auto collectives_with() {
    std::array<Collective, std::ranges::count_if(collective_table, is_one)> found{};
    size_t next = 0;
    for (const CollectiveRow &row : collective_table)
        if (is_one(row)) found.at(next++) = row.collective;
    return found;
}
// nvcc takes no closures as template arguments.
constexpr bool has_schedule(const CollectiveRow &row) { return row.is_scheduled; }
constexpr bool moves_values(const CollectiveRow &row) { return row.is_scheduled && row.has_values; }
inline constexpr auto scheduled_collectives = collectives_with<has_schedule>();
inline constexpr auto value_collectives = collectives_with<moves_values>();
template <size_t number>
constexpr auto names_of(const std::array<Collective, number> &collectives) {
    std::array<const char *, number> names{};
    for (size_t i = 0; i < number; i++) names.at(i) = row_of(collectives.at(i)).name;
    return names;
}
inline constexpr auto collective_names = names_of(scheduled_collectives);
inline constexpr auto value_collective_names = names_of(value_collectives);

constexpr const TypeInfo &info(DataType type) { return type_table[static_cast<size_t>(type)]; }
constexpr size_t type_bytes(DataType type) { return info(type).bytes; }
constexpr DataType accumulator_of(DataType type) { return info(type).accumulator; }
constexpr const char *name(DataType type) { return info(type).name; }
constexpr const char *name(RedOp op) { return op_names[static_cast<size_t>(op)]; }
constexpr const char *name(Collective call) { return row_of(call).name; }

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
    if (name.empty()) return std::nullopt; // not the empty second alias
    for (const TypeInfo &row : type_table)
        if (name == row.name || std::ranges::find(row.aliases, name) != row.aliases.end())
            return row.type;
    return std::nullopt;
}

inline std::optional<RedOp> parse_op(std::string_view name) {
    for (size_t i = 0; i < op_names.size(); i++)
        if (name == op_names[i]) return static_cast<RedOp>(i);
    return std::nullopt;
}

inline std::optional<Collective> parse_collective(std::string_view name) {
    if (name.empty()) return std::nullopt; // not an empty alias
    for (const CollectiveRow &row : collective_table)
        if (row.is_scheduled && (name == row.name || name == row.alias)) return row.collective;
    return std::nullopt;
}

constexpr bool reduces(Collective collective) { return row_of(collective).reduces; }
// Whether results are reductions of the ranks up to each rank.
constexpr bool is_prefix(Collective collective) {
    return row_of(collective).covers != Covers::all_ranks;
}
// Returns the number of ranks whose values the rank's result covers.
constexpr uint32_t covered_ranks(Collective collective, uint32_t rank, uint32_t ranks) {
    const Covers covers = row_of(collective).covers;
    return covers == Covers::all_ranks ? ranks : covers == Covers::up_to_own ? rank + 1 : rank;
}
// Whether every rank receives something, and so hears of what the others have found.
constexpr bool do_all_receive(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return !row.has_one_result && !row.moves_on && !is_prefix(collective);
}
// Whether all ranks have the same result.
constexpr bool is_same_everywhere(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return do_all_receive(collective) && !row.scatters && !row.exchanges;
}
// Whether calls may name the operation. An average of fewer ranks than all has no number that all
// ranks divide by. Where nothing is reduced, `op` is sum.
constexpr bool takes_op(Collective collective, RedOp op) {
    return reduces(collective) ? op != RedOp::avg || !is_prefix(collective) : op == RedOp::sum;
}
// Whether the operation sums its operands; an average is a multiple of the sum.
constexpr bool adds(RedOp op) { return op == RedOp::sum || op == RedOp::avg; }
// Whether the vector consists of equal parts, one for each rank, and `count` is the count of a
// part. A rank whose buffer does not hold the vector holds its own part, or nothing.
constexpr bool has_part_per_rank(Collective collective) {
    const CollectiveRow &row = row_of(collective);
    return row.scatters || row.gathers || row.exchanges;
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
