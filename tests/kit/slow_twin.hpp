// The slow twin of a whole collective: computes the result of every rank from the numerical
// contract on plain vectors, one rank after another, with the scalar reference. It shares no
// schedules, segments, transports or engine with the library. Used by tests that compare bytes;
// does not block.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "schedule/rank_topology.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qtest {

using Bytes = std::vector<std::byte>;

struct TwinCall {
    qccl::Collective collective = qccl::Collective::all_reduce;
    std::string algorithm{};
    qccl::DataType type = qccl::DataType::float32;
    qccl::RedOp op = qccl::RedOp::sum;
    qccl::Codec codec{};
    uint64_t count = 0; // as in the C API
    uint32_t ranks = 1;
    uint32_t root = 0;
    uint64_t number = 1; // of the call
    uint64_t seed = 0;
    // For hierarchy and rings: the location of each rank, unless all are in one place, and the
    // codec of partial sums below the outermost tier.
    qccl::Codec inner_codec{};
    std::vector<qccl::RankLocation> spots{};
    // The orders of the rings, if they do not follow from the locations.
    std::vector<std::vector<uint32_t>> rings{};
};

// Number of elements in a rank's send buffer and in its receive buffer. A rank that gives nothing
// has a send buffer nevertheless, which nobody may read; a rank that gets nothing has no receive
// buffer.
inline uint64_t send_count(const TwinCall &call) {
    const qccl::CollectiveRow &row = qccl::row_of(call.collective);
    return call.count * (row.scatters || row.exchanges ? call.ranks : 1);
}

inline uint64_t recv_count(const TwinCall &call, uint32_t rank) {
    const qccl::CollectiveRow &row = qccl::row_of(call.collective);
    if (row.has_one_result && rank != call.root) return 0;
    if (row.moves_on && rank != (call.root + 1) % call.ranks) return 0;
    if (qccl::covered_ranks(call.collective, rank, call.ranks) == 0) return 0;
    return call.count * (row.gathers || row.exchanges ? call.ranks : 1);
}

// An in-place call's memory, and where the rank's two buffers begin in it, in elements.
struct SharedBuffer {
    uint64_t count = 0, send = 0, recv = 0;
};
inline SharedBuffer in_place_buffer(const TwinCall &call, uint32_t rank) {
    const qccl::CollectiveRow &row = qccl::row_of(call.collective);
    const uint64_t own = rank * call.count;
    return {.count = qccl::vector_count(call.collective, call.count, call.ranks),
            .send = row.gathers ? own : 0,
            .recv = row.scatters ? own : 0};
}

// Algorithm and collective as one value of a column.
inline uint64_t form_of(const TwinCall &call) {
    return std::hash<std::string>{}(call.algorithm) * 31 + static_cast<uint64_t>(call.collective);
}

// Returns the receive buffers by rank. `inputs`: the send buffers by rank.
std::vector<Bytes> slow_twin(const TwinCall &call, const std::vector<Bytes> &inputs);

} // namespace qtest
