// Lists the types, sizes and roots of a sweep.
#include "perf/sweep.hpp"

namespace qccl::perf {

std::vector<DataType> sweep_types(const PerfArguments &arguments) {
    return arguments.types.value_or(std::vector{DataType::float32});
}

std::vector<uint64_t> sweep_sizes(const PerfArguments &arguments) {
    std::vector<uint64_t> sizes;
    const uint64_t largest = arguments.max_bytes;
    for (uint64_t size = arguments.min_bytes; size <= largest;) {
        sizes.push_back(size);
        const uint64_t factor = arguments.step_factor, step = arguments.step_bytes;
        if (size == largest) break;
        if (factor > 1 ? size > largest / factor : step > largest - size) break;
        size = factor > 1 ? size * factor : size + step;
    }
    return sizes;
}

std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks) {
    if (arguments.collective != Collective::broadcast) return {0};
    if (arguments.root) return {*arguments.root};
    std::vector<uint32_t> roots(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) roots[rank] = rank;
    return roots;
}

uint64_t sweep_points(const PerfArguments &arguments) {
    return sweep_types(arguments).size() * arguments.ops.size() *
           sweep_roots(arguments, arguments.ranks).size() * sweep_sizes(arguments).size();
}

} // namespace qccl::perf
