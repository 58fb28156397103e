// Parses the names of types, operations and collectives.
#include "base/types.hpp"

namespace qccl {

std::optional<DataType> parse_type(std::string_view name) {
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

std::optional<RedOp> parse_op(std::string_view name) {
    for (size_t i = 0; i < op_names.size(); i++)
        if (name == op_names[i]) return static_cast<RedOp>(i);
    return std::nullopt;
}

std::optional<Collective> parse_collective(std::string_view name) {
    if (name == "allreduce") return Collective::all_reduce;
    for (size_t i = 0; i < collective_names.size(); i++)
        if (name == collective_names[i]) return static_cast<Collective>(i);
    return std::nullopt;
}

} // namespace qccl
