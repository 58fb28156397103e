// Checks whether a result is right and measures its distance from the exact result. Used by
// qccl-perf; rehearsals use the exact result too. The ranks share the work: if hashes show that all
// ranks hold the same result, each rank checks one part of it.
//
// The exact result is computed element by element from the ranks' inputs: reals in fp64, all other
// types exactly. A complex element counts as two reals. The order of the sums and the codec of the
// call do not matter there. One thread at a time may use an ExactResult.
//
// A lossless result is compared bit for bit if its exact value does not depend on the order of the
// sums (integers, min, max, copies, and sums of generated fp32 and fp64 data). Other lossless
// results are compared with the bound for rounded sums. A compressed result is compared with the
// largest change that its encodes can cause. Where owners keep exact values, each rank checks its
// whole result, and those values bit for bit.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"
#include "perf/report/measurement.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/rank_group.hpp"

#include <optional>
#include <vector>

namespace qccl::perf {

// ---- Exact result

// Returns the operation on reals if the type is complex, otherwise the same operation.
Operation in_reals(Operation operation);

class ExactResult {
public:
    ExactResult(const Operation &operation, const Source &source)
        : operation_(in_reals(operation)), source_(source),
          multiplies_complex_(reals_of(operation.type) == 2 && operation.op == RedOp::prod &&
                              reduces(operation.collective)) {}

    // Computes elements, or reals of a complex type, [first, first + count) of what `rank`
    // receives. `magnitudes` gets the sum, or for prod the product, of the inputs' magnitudes. A
    // product of complex numbers needs whole numbers.
    void reals(uint32_t rank, uint64_t first, size_t count, double *dst, double *magnitudes);
    void integers(uint32_t rank, uint64_t first, size_t count, int64_t *dst);
    // The largest magnitude among all real inputs read so far.
    double largest_input() const { return largest_; }

private:
    template <class T, class Load, class Use>
    void for_each_input(uint32_t rank, uint64_t first, size_t count, Load load, Use use);
    const std::byte *read(uint32_t giver, uint64_t first, size_t count);

    void multiply(size_t imaginary, double re, double im, bool is_first, double *dst,
                  double *magnitudes) const;

    const Operation operation_;
    const Source &source_;
    const bool multiplies_complex_;
    std::vector<std::byte> raw_;
    double largest_ = 0;
};

// ---- Check

struct CheckResult {
    uint64_t wrong = 0; // elements whose error exceeds the bound, over all ranks
    // Elements with finite inputs whose exact value, or an intermediate value, exceeds the range of
    // the type, so that no right answer is known.
    uint64_t overflowed = 0;
    // Relative to the fp64 result; nothing for integers, non-finite data and overflows.
    std::optional<double> nmse;
    std::optional<double> max_abs_err;
    std::optional<bool> ranks_agree; // nothing if ranks have different results
};

// Checks `result`, which this rank received. All ranks call this together; it blocks until all have
// checked, and all get the same result.
Result<CheckResult> check_result(RankGroup &rank_group, const Operation &operation,
                                 const Codec &codec, const Source &source, const std::byte *result);

// The largest change of a value by one encode, as a fraction of the largest magnitude that shares
// its scale; 0 for no codec.
double encode_bound(const Codec &codec);

} // namespace qccl::perf
