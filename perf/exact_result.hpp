// Computes the exact result of a collective, element by element, from the ranks' inputs: reals in
// fp64, integers exactly. Used to check results and by rehearsals. The order of the sums and the
// codec of the call do not matter here. One thread at a time may use an ExactResult.
#pragma once

#include "perf/datagen.hpp"
#include "perf/operation.hpp"

#include <vector>

namespace qccl::perf {

class ExactResult {
public:
    ExactResult(const Operation &operation, const Source &source)
        : operation_(operation), source_(source) {}

    // Computes elements [first, first + count) of what `rank` receives. `magnitudes` gets the sum,
    // or for prod the product, of the inputs' magnitudes.
    void reals(uint32_t rank, uint64_t first, size_t count, double *dst, double *magnitudes);
    void integers(uint32_t rank, uint64_t first, size_t count, int64_t *dst);
    // The largest magnitude among all real inputs read so far.
    double largest_input() const { return largest_; }

private:
    template <class T, class Load, class Use>
    void for_each_input(uint32_t rank, uint64_t first, size_t count, Load load, Use use);
    const std::byte *read(uint32_t giver, uint64_t first, size_t count);

    const Operation operation_;
    const Source &source_;
    std::vector<std::byte> raw_;
    double largest_ = 0;
};

} // namespace qccl::perf
