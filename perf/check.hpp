// Whether a result is right, and how far it lies from the exact one. Ranks share the work: each
// looks at its part of a result that hashes show to be the same everywhere.
//
// A lossless result is compared bit for bit where its exact value is known whatever the order of
// the sums (integers, min, max, copies, and sums of made fp32 and fp64 data), else with the bound
// for rounded sums. A compressed one is compared with the most that its encodes can change.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "perf/crew.hpp"
#include "perf/exact_result.hpp"

#include <optional>

namespace qccl::perf {

struct Verdict {
    uint64_t wrong = 0; // elements beyond what is allowed, over all ranks
    // Elements whose inputs are finite, and whose exact value, or one on the way to it, is beyond
    // what the type holds: no right answer is known.
    uint64_t overflowed = 0;
    // Against the fp64 result; nothing for integers, non-finite data and overflows.
    std::optional<double> nmse;
    std::optional<double> max_abs_err;
    std::optional<bool> ranks_agree; // nothing where ranks receive different parts
};

// `result` is what this rank received. Every rank calls this.
Result<Verdict> check_result(Crew &crew, const Operation &operation, const Codec &codec,
                             const Source &source, const std::byte *result);

// The most by which one encode changes a value, in parts of the largest magnitude that shares its
// scale; 0 for none.
double encode_bound(const Codec &codec);

} // namespace qccl::perf
