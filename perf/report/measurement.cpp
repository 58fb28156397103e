// Implements measurement.hpp: sorts the times and computes all statistics from them, and gives the
// sizes, in-place positions and bandwidths of a collective with the formulas of nccl-tests.
#include "perf/report/measurement.hpp"

#include "schedule/shape.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace qccl::perf {

// ---- Statistics

static double percentile(const std::vector<double> &sorted, size_t percent) {
    return sorted[std::max<size_t>((sorted.size() * percent + 99) / 100, 1) - 1];
}

Statistics statistics(std::span<const double> values) {
    if (values.empty()) return {};
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    const size_t count = sorted.size();
    const double mean =
        std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(count);
    double squares = 0;
    for (const double value : sorted) squares += (value - mean) * (value - mean);
    return {.mean = mean,
            .median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2,
            .p95 = percentile(sorted, 95),
            .p99 = percentile(sorted, 99),
            .min = sorted.front(),
            .max = sorted.back(),
            .deviation = std::sqrt(squares / static_cast<double>(count))};
}

// ---- One call

uint64_t Operation::send_count() const {
    if (parts) return parts->most_sent();
    return row_of(collective).scatters || row_of(collective).exchanges ? count * ranks : count;
}

uint64_t Operation::recv_count() const {
    if (parts) return parts->most_received();
    return gathers(kind()) || row_of(collective).exchanges ? count * ranks : count;
}

uint64_t Operation::part_start(uint32_t giver, uint32_t taker) const {
    if (parts) return parts->send_start(giver, taker);
    return row_of(collective).exchanges || row_of(collective).scatters ? taker * count : 0;
}

bool Operation::has_in_place() const {
    if (parts && row_of(collective).exchanges) return parts->is_symmetric();
    return pattern != Pattern::sendrecv;
}

bool Operation::has_result(uint32_t rank) const {
    if (kind().is_messages()) return true;
    return has_output(collective, {.size = ranks, .rank = rank, .root = root});
}

uint64_t Operation::bytes() const { return recv_part() * type_bytes(type) * calls(); }

uint64_t Operation::send_in_place_start(uint32_t rank) const {
    if (!gathers(kind())) return 0;
    return parts ? parts->own_start(rank) : rank * count;
}

uint64_t Operation::recv_in_place_start(uint32_t rank) const {
    if (!row_of(collective).scatters) return 0;
    return parts ? parts->own_start(rank) : rank * count;
}

// Of hypercube nccl-tests counts what a rank receives, and both bandwidths are the same.
double Operation::algbw(double seconds) const {
    const uint64_t moved =
        pattern == Pattern::hypercube ? count * (ranks - 1) * type_bytes(type) : bytes();
    return seconds > 0 ? static_cast<double>(moved) / 1e9 / seconds : 0;
}

// The bandwidth of a link under the least possible traffic: a sum must reach and leave every rank,
// while a gathered block only leaves its own rank.
double Operation::busbw(double seconds) const {
    if (parts) {
        const uint64_t moved = parts->busiest() * type_bytes(type) * calls();
        return seconds > 0 ? static_cast<double>(moved) / 1e9 / seconds : 0;
    }
    const double others = static_cast<double>(ranks - 1) / ranks;
    switch (collective) {
    case Collective::all_reduce: return algbw(seconds) * 2 * others;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::scan:
    case Collective::exscan:
    case Collective::send: return algbw(seconds);
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
    case Collective::reduce_scatter:
    case Collective::all_gather:
    case Collective::barrier: break;
    }
    return algbw(seconds) * others;
}

Operation operation_of(Collective collective, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes) {
    PerfArguments arguments;
    arguments.collective = collective;
    return operation_of(arguments, type, op, root, ranks, bytes);
}

Operation operation_of(const PerfArguments &arguments, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes) {
    const uint64_t count = bytes / type_bytes(type);
    const uint64_t multiple = 16 / type_bytes(type);
    const bool has_parts = has_part_per_rank(arguments.kind());
    Operation operation{.collective = arguments.collective,
                        .pattern = arguments.pattern,
                        .group = arguments.group,
                        .type = type,
                        .op = op,
                        .root = root,
                        .ranks = ranks,
                        .count = has_parts ? count / ranks / multiple * multiple : count};
    if (arguments.pattern != Pattern::v_form) return operation;
    operation.skew = arguments.skew.value_or(Skew::linear);
    operation.parts = PartCounts::create({.collective = operation.collective,
                                          .skew = operation.skew,
                                          .seed = arguments.seed,
                                          .ranks = ranks,
                                          .root = root,
                                          .count = operation.count});
    return operation;
}

bool gathers(const CallKind &kind) {
    return kind.pattern == Pattern::hypercube || row_of(kind.collective).gathers;
}

bool has_part_per_rank(const CallKind &kind) {
    return kind.pattern == Pattern::hypercube || has_part_per_rank(kind.collective);
}

// ---- The calls of a sweep

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

bool has_root(const CallKind &kind) {
    return !kind.is_messages() && row_of(kind.collective).has_root;
}

std::vector<uint32_t> sweep_roots(const PerfArguments &arguments, uint32_t ranks) {
    if (!has_root(arguments.kind())) return {0};
    if (arguments.root) return {*arguments.root};
    std::vector<uint32_t> roots(ranks);
    for (uint32_t rank = 0; rank < ranks; rank++) roots[rank] = rank;
    return roots;
}

uint64_t sweep_points(const PerfArguments &arguments) {
    uint64_t combinations = 0;
    for (const DataType type : sweep_types(arguments))
        for (const RedOp op : arguments.ops)
            combinations += check_op(arguments.collective, type, op) ? 1 : 0;
    return combinations * sweep_roots(arguments, arguments.ranks).size() *
           sweep_sizes(arguments).size();
}

} // namespace qccl::perf
