// Decides how long a GPU waits for the others in a barrier. GpuFastPath uses it, on one thread.
#pragma once

#include <cstdint>

namespace qccl {

// A GPU that several processes share serves them in turn, so such processes never meet in a
// barrier, however long they wait. After a few misses the GPUs only look once whether the others
// happen to be there; now and then they wait again.
class SpinBudget {
public:
    // A look takes a good part of a microsecond. So many looks cover the time by which ranks that
    // call together are apart. More would be wrong, because the GPU may be the others', too.
    static constexpr uint64_t most_looks = 500;

    // Returns how many times the next barrier may look for the others.
    uint64_t looks() const {
        return misses_ < misses_in_a_row || misses_ % misses_between == 0 ? most_looks : 1;
    }
    // Records whether the last barrier succeeded.
    void learn(bool has_met) { misses_ = has_met ? 0 : misses_ + 1; }

private:
    static constexpr uint64_t misses_in_a_row = 4, misses_between = 64;
    uint64_t misses_ = 0;
};

} // namespace qccl
