// For how long a GPU waits for the others. Knows no GPU.
#pragma once

#include <cstdint>

namespace qccl {

// GPUs that take turns with what others want of them, as those do that processes share, never meet
// however long they wait: after a few misses they only look whether the others happen to be there,
// and wait again now and then.
class MeetingPatience {
public:
    // Each a good part of a microsecond: as many as ranks that call at the same time are apart, and
    // no more, since the GPU may be theirs, too.
    static constexpr uint64_t most_looks = 500;

    uint64_t looks() const {
        return misses_ < misses_in_a_row || misses_ % misses_between == 0 ? most_looks : 1;
    }
    void learn(bool has_met) { misses_ = has_met ? 0 : misses_ + 1; }

private:
    static constexpr uint64_t misses_in_a_row = 4, misses_between = 64;
    uint64_t misses_ = 0;
};

} // namespace qccl
