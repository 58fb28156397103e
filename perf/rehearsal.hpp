// Does an all-reduce of all ranks in one thread, step by step as their schedules have it, with the
// library's kernels on data at hand: what a codec would make of them over any number of hosts,
// without hosts. qccl-info advise measures errors by it. Blocks for as long as it computes; any
// thread.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/datagen.hpp"
#include "schedule/places.hpp"

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
    const Places *places = nullptr; // held by the caller; null: all are on one host
};

// The sum that every rank is left with, to the bit as in the first call of a communicator. An error
// (invalid_argument) says why there is no such schedule.
Result<std::vector<std::byte>> rehearse(const Rehearsal &rehearsal, const Source &inputs);

// The NMSE of that sum: its squared error over the squared exact sum, which is made in fp64.
// Nothing where the exact sum is zero everywhere, or either is not finite.
Result<std::optional<double>> rehearsed_nmse(const Rehearsal &rehearsal, const Source &inputs);

} // namespace qccl::perf
