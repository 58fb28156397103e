// The sizes, in-place positions and bandwidths of a collective, with the formulas of nccl-tests.
#include "perf/operation.hpp"

#include <algorithm>

namespace qccl::perf {

uint64_t Operation::send_count() const {
    return collective == Collective::reduce_scatter ? count * ranks : count;
}

uint64_t Operation::recv_count() const {
    return collective == Collective::all_gather ? count * ranks : count;
}

uint64_t Operation::bytes() const {
    return std::max(send_count(), recv_count()) * type_bytes(type);
}

uint64_t Operation::send_in_place_stride() const {
    return collective == Collective::all_gather ? count : 0;
}

uint64_t Operation::recv_in_place_stride() const {
    return collective == Collective::reduce_scatter ? count : 0;
}

double Operation::algbw(double seconds) const {
    return seconds > 0 ? static_cast<double>(bytes()) / 1e9 / seconds : 0;
}

// The bandwidth of a link under the least possible traffic: a sum must reach and leave every rank,
// while a gathered block only leaves its own rank.
double Operation::busbw(double seconds) const {
    const double others = static_cast<double>(ranks - 1) / ranks;
    switch (collective) {
    case Collective::all_reduce: return algbw(seconds) * 2 * others;
    case Collective::broadcast: return algbw(seconds);
    default: return algbw(seconds) * others;
    }
}

Operation operation_of(Collective collective, DataType type, RedOp op, uint32_t root,
                       uint32_t ranks, uint64_t bytes) {
    const uint64_t count = bytes / type_bytes(type);
    const uint64_t multiple = 16 / type_bytes(type);
    return {.collective = collective,
            .type = type,
            .op = op,
            .root = root,
            .ranks = ranks,
            .count = has_part_per_rank(collective) ? count / ranks / multiple * multiple : count};
}

} // namespace qccl::perf
