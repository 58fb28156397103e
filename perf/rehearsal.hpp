// Executes an all-reduce of all ranks in one thread, step by step as in the ranks' schedules, with
// the library's kernels on given data. This shows the effect of a codec on any number of hosts
// without using hosts. qccl-info advise measures errors with it. Any thread; a call blocks while it
// computes.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/datagen.hpp"
#include "schedule/rank_topology.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace qccl::perf {

struct Rehearsal {
    Algorithm algorithm = {};
    Codec codec = {}, inner_codec = {};
    DataType type = DataType::float32;
    uint64_t count = 0;
    uint32_t ranks = 1;
    const RankTopology *places = nullptr; // owned by the caller; null: all are on one host
};

// Returns the sum that every rank gets, bit for bit as in the first call of a communicator. Fails
// with invalid_argument if there is no such schedule.
Result<std::vector<std::byte>> rehearse(const Rehearsal &rehearsal, const Source &inputs);

// Returns the NMSE of that sum: its squared error divided by the squared exact sum, which is
// computed in fp64. Returns nothing if the exact sum is zero everywhere or one of the sums is not
// finite.
Result<std::optional<double>> rehearsed_nmse(const Rehearsal &rehearsal, const Source &inputs);

} // namespace qccl::perf
