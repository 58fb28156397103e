// Checks whether a result is right and measures its distance from the exact result. Used by
// qccl-perf. The ranks share the work: if hashes show that all ranks hold the same result, each
// rank checks one part of it.
//
// A lossless result is compared bit for bit if its exact value does not depend on the order of the
// sums (integers, min, max, copies, and sums of generated fp32 and fp64 data). Other lossless
// results are compared with the bound for rounded sums. A compressed result is compared with the
// largest change that its encodes can cause.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "perf/rank_group.hpp"
#include "perf/exact_result.hpp"

#include <optional>

namespace qccl::perf {

struct CheckResult {
    uint64_t wrong = 0; // elements whose error exceeds the bound, over all ranks
    // Elements with finite inputs whose exact value, or an intermediate value, exceeds the range of
    // the type, so that no right answer is known.
    uint64_t overflowed = 0;
    // Relative to the fp64 result; nothing for integers, non-finite data and overflows.
    std::optional<double> nmse;
    std::optional<double> max_abs_err;
    std::optional<bool> ranks_agree; // nothing if ranks receive different parts
};

// Checks `result`, which this rank received. All ranks call this together; it blocks until all have
// checked, and all get the same result.
Result<CheckResult> check_result(RankGroup &rank_group, const Operation &operation,
                                 const Codec &codec, const Source &source, const std::byte *result);

// The largest change of a value by one encode, as a fraction of the largest magnitude that shares
// its scale; 0 for no codec.
double encode_bound(const Codec &codec);

} // namespace qccl::perf
