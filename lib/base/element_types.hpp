// The types of elements and the operations that combine them: their numbers, names and sizes, and
// which operations a type takes. A number that NCCL has, too, is NCCL's. The arithmetic is in
// kernels/codec/combine.hpp. Pure; any thread may call.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
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
    int16 = 12,
    uint16 = 13,
    complex64 = 14,  // two fp32
    complex128 = 15, // two fp64
    boolean = 16,
    float_int = 17, // a value and an index of 32 bits, and so are those below
    double_int = 18,
    long_int = 19, // of int64
    int_int = 20,
    short_int = 21, // of int16
};

enum class RedOp : int32_t {
    sum = 0,
    prod = 1,
    max = 2,
    min = 3,
    avg = 4,
    bit_and = 5,
    bit_or = 6,
    bit_xor = 7,
    logical_and = 8,
    logical_or = 9,
    logical_xor = 10,
    min_loc = 11,
    max_loc = 12,
    // Operations that a program makes. The first two are functions of the program's: of one that
    // does not commute, the operands stay in the order of the ranks.
    custom = 13,
    custom_in_order = 14,
    pre_mul_sum = 15, // each rank multiplies its values by a number of its own before the sum
};

// The numbers of a floating-point format: zero, powers of two and the multiples between them.
struct FloatFormat {
    int fraction_bits = 0;
    int lowest = 0, highest = 0; // exponents of the smallest normal number and of the largest one
    double largest = 0;          // the largest finite number

    // Exponent of the smallest number above zero, a subnormal.
    constexpr int smallest() const { return lowest - fraction_bits; }
    bool operator==(const FloatFormat &) const = default;
};

// What an element consists of: one number, a real and an imaginary part, a truth value, or a value
// and its index.
enum class TypeKind : uint8_t { number, complex, boolean, pair };

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
    TypeKind kind = TypeKind::number;
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
    {DataType::int16, "int16", 2, DataType::int16},
    {DataType::uint16, "uint16", 2, DataType::uint16},
    {.type = DataType::complex64,
     .name = "complex64",
     .bytes = 8,
     .accumulator = DataType::complex64,
     .aliases = {"cfloat"},
     .kind = TypeKind::complex},
    {.type = DataType::complex128,
     .name = "complex128",
     .bytes = 16,
     .accumulator = DataType::complex128,
     .aliases = {"cdouble"},
     .kind = TypeKind::complex},
    {.type = DataType::boolean,
     .name = "bool",
     .bytes = 1,
     .accumulator = DataType::boolean,
     .aliases = {"boolean"},
     .kind = TypeKind::boolean},
    {.type = DataType::float_int,
     .name = "float_int",
     .bytes = 8,
     .accumulator = DataType::float_int,
     .kind = TypeKind::pair},
    {.type = DataType::double_int,
     .name = "double_int",
     .bytes = 16,
     .accumulator = DataType::double_int,
     .kind = TypeKind::pair},
    {.type = DataType::long_int,
     .name = "long_int",
     .bytes = 16,
     .accumulator = DataType::long_int,
     .kind = TypeKind::pair},
    {.type = DataType::int_int,
     .name = "int_int",
     .bytes = 8,
     .accumulator = DataType::int_int,
     .aliases = {"2int"},
     .kind = TypeKind::pair},
    {.type = DataType::short_int,
     .name = "short_int",
     .bytes = 8,
     .accumulator = DataType::short_int,
     .kind = TypeKind::pair},
});

// Whether row i of a table has the number i.
template <class Row, size_t rows, class Number>
constexpr bool is_in_order(const std::array<Row, rows> &table, Number Row::*number) {
    for (size_t i = 0; i < rows; i++)
        if (static_cast<size_t>(table[i].*number) != i) return false;
    return true;
}
static_assert(is_in_order(type_table, &TypeInfo::type));

inline constexpr std::array<const char *, 16> names_of_ops{
    "sum",        "prod",   "max",    "min",        "avg",
    "bitand",     "bitor",  "bitxor", "logicaland", "logicalor",
    "logicalxor", "minloc", "maxloc", "custom",     "custom in order",
    "mulsum"};
static_assert(names_of_ops.size() == static_cast<size_t>(RedOp::pre_mul_sum) + 1);

// The operations that every program has: their numbers are below this one.
inline constexpr size_t predefined_ops = static_cast<size_t>(RedOp::custom);
inline constexpr auto op_names = [] {
    std::array<const char *, predefined_ops> names{};
    std::ranges::copy_n(names_of_ops.begin(), predefined_ops, names.begin());
    return names;
}();
inline constexpr auto all_ops = [] {
    std::array<RedOp, predefined_ops> ops{};
    for (size_t i = 0; i < ops.size(); i++) ops.at(i) = static_cast<RedOp>(i);
    return ops;
}();

constexpr const TypeInfo &info(DataType type) { return type_table[static_cast<size_t>(type)]; }
constexpr size_t type_bytes(DataType type) { return info(type).bytes; }
// Returns the address behind `count` values.
inline const std::byte *behind(const void *values, DataType type, uint64_t count) {
    return static_cast<const std::byte *>(values) + count * type_bytes(type);
}
inline std::byte *behind(void *values, DataType type, uint64_t count) {
    return static_cast<std::byte *>(values) + count * type_bytes(type);
}
constexpr DataType accumulator_of(DataType type) { return info(type).accumulator; }

// Returns the type of the parts of a complex type, otherwise the type itself; and the number of
// parts, or 1.
constexpr DataType real_type(DataType type) {
    if (info(type).kind != TypeKind::complex) return type;
    return type == DataType::complex64 ? DataType::float32 : DataType::float64;
}
constexpr unsigned reals_of(DataType type) { return info(type).kind == TypeKind::complex ? 2 : 1; }

// Returns a type as large as `type` whose values are only moved: the values of custom operations,
// which the library does not look into.
constexpr DataType carrier_of(DataType type) {
    switch (type_bytes(type)) {
    case 1: return DataType::uint8;
    case 2: return DataType::uint16;
    case 4: return DataType::uint32;
    case 8: return DataType::uint64;
    default: return DataType::long_int;
    }
}

constexpr const char *name(DataType type) { return info(type).name; }
constexpr const char *name(RedOp op) { return names_of_ops[static_cast<size_t>(op)]; }

// Whether values of the type can be combined with the operation. Every other part of the library
// asks here.
constexpr bool takes(DataType type, RedOp op) {
    const TypeInfo &row = info(type);
    const bool is_number = row.kind == TypeKind::number, is_boolean = row.kind == TypeKind::boolean;
    switch (op) {
    case RedOp::sum:
    case RedOp::prod:
    case RedOp::avg:
    case RedOp::pre_mul_sum: return is_number || row.kind == TypeKind::complex;
    case RedOp::custom:
    case RedOp::custom_in_order: return true;
    case RedOp::max:
    case RedOp::min: return is_number || is_boolean;
    case RedOp::bit_and:
    case RedOp::bit_or:
    case RedOp::bit_xor:
    case RedOp::logical_and:
    case RedOp::logical_or:
    case RedOp::logical_xor: return (is_number && !row.is_float) || is_boolean;
    case RedOp::min_loc:
    case RedOp::max_loc: return row.kind == TypeKind::pair;
    }
    return false;
}

// Converts a number that a C caller passed; nothing if the number is not valid.
constexpr std::optional<DataType> to_type(int32_t number) {
    if (number < 0 || number >= static_cast<int32_t>(type_table.size())) return std::nullopt;
    return static_cast<DataType>(number);
}
constexpr std::optional<RedOp> to_op(int32_t number) {
    if (number < 0 || number >= static_cast<int32_t>(predefined_ops)) return std::nullopt;
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

inline std::optional<RedOp> parse_op(std::string_view text) {
    for (const RedOp op : all_ops)
        if (text == qccl::name(op)) return op;
    return std::nullopt;
}

// Whether the operation sums its operands; an average is a multiple of the sum.
constexpr bool adds(RedOp op) {
    return op == RedOp::sum || op == RedOp::avg || op == RedOp::pre_mul_sum;
}
// Whether a program has made the operation.
constexpr bool is_made(RedOp op) { return op >= RedOp::custom; }
// Whether the operation is a function of the program's.
constexpr bool is_custom(RedOp op) { return op == RedOp::custom || op == RedOp::custom_in_order; }

} // namespace qccl
