// Rehearses sums: executes an all-reduce of all ranks in one thread, step by step as in the ranks'
// schedules, with the library's kernels on given data. This shows the effect of a codec on any
// number of hosts without using hosts. A rehearsal of a sample predicts the error of the whole sum
// at the cost of the sample. Used by qccl-info and the demonstration. Prints nothing. Any thread
// may call; a call blocks while it computes.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/run/input_data.hpp"
#include "plan/planner.hpp"
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

// Returns the rehearsal of the problem's sum by the plan. The problem's codec is ignored, and its
// places must outlive the result.
Rehearsal rehearsal_of(const Plan &plan, const Problem &problem);

// Returns the sum that every rank gets, bit for bit as in the first call of a communicator. Fails
// with invalid_argument if there is no such schedule.
Result<std::vector<std::byte>> rehearse(const Rehearsal &rehearsal, const Source &inputs);

// Returns the NMSE of that sum: its squared error divided by the squared exact sum, which is
// computed in fp64. Returns nothing if the exact sum is zero everywhere or one of the sums is not
// finite.
Result<std::optional<double>> rehearsed_nmse(const Rehearsal &rehearsal, const Source &inputs);

// How much of a vector a sample takes.
struct SampleSize {
    double share = 1.0 / 8;
    // Shorter vectors are taken as a whole, and longer ones not less. So are vectors of which the
    // sample would have fewer than 16 runs.
    uint64_t fewest_values = uint64_t{1} << 15;
    // Neighbouring values that are taken together, at least; rounded up to the codecs' grain.
    uint64_t run_values = 1024;
};

// Predicts rehearsed_nmse() from a sample of the values, the same places of all ranks.
//
// The rehearsal of the sample has what the error of unlike ranks depends on: how strong each
// partial sum is in each part of the vector, which values the ranks that sum a part never encode,
// and how little a weak rank changes the codes of a sum that is already encoded. No assumption
// about the ranks is needed, only that the sample stands for the vector.
//
// Few values of gradients hold most of the squares, and evenly spread places miss them. So the
// vector is cut into runs within the chunks of the schedule, and a run is taken with a probability
// that grows with its squares (sampling with probability proportional to size: M. Hansen and
// W. Hurwitz, "On the theory of sampling from finite populations", 1943); a quarter of the sample
// goes by length alone, for errors where there are hardly any squares. One pass over the values
// finds the squares. The squared errors and squares of a run count by the inverse of its
// probability (D. Horvitz and D. Thompson, 1952), and the NMSE is the ratio of the two sums. The
// runs are the same each time.
//
// A scale, a bucket or a block covers the values of the vector that it covers there, as long as it
// is not longer than a run; one of a whole chunk covers the chunk's sample, in which the large
// values are. `topk` keeps as many of the sample's values as stand for its share of the chunk.
// Returns nothing where rehearsed_nmse() does.
Result<std::optional<double>> sampled_nmse(const Rehearsal &rehearsal, const Source &inputs,
                                           const SampleSize &size = {});

} // namespace qccl::perf
