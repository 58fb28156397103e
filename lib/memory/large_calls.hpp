// How long the memory of large calls is kept. Large calls come in rows, and the kernel takes about
// as long to allocate and zero their memory as such a call takes with it. So the memory of a large
// call stays for the calls after it, until so many calls in a row have not been large. The
// transport (overflow memory) and the engine (accumulators, payloads and unpacked chunks) each have
// a RecentLargeCall, on the thread that runs the calls. Nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

// The transport keeps up to so many bytes for the ranks of a host together, the engine of each rank
// for every purpose.
inline constexpr size_t most_large_kept = size_t{256} << 20;
inline constexpr uint32_t large_calls_kept = 16;

class RecentLargeCall {
public:
    // Marks the current call as large; repeating it has no effect.
    void note() { calls_left_ = large_calls_kept + 1; }
    // Counts the current call as ended; every call ends, a large one too. Returns whether the
    // memory of the last large call is still kept.
    bool end_call() {
        if (calls_left_ != 0) calls_left_--;
        return keeps_memory();
    }
    // As of the last call that has ended.
    bool keeps_memory() const { return calls_left_ != 0; }

private:
    uint32_t calls_left_ = 0; // calls that may still end before the memory is given back
};

} // namespace qccl
