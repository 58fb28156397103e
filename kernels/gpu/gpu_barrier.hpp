// A flag barrier between GPUs. Each GPU signals to the others that its eager slot is written. The
// GPU then polls, a bounded number of times, until all others have signalled. A GPU that misses a
// signal reports that and the host waits instead, so no GPU spins for a process that may not even
// run. KernelLauncher::launch_barrier launches the barrier.
//
// A batch has one tensor of one value. Its operands are, in this order:
// - the words in which the others signal this GPU (`coded`: the value, `begin`: number of polls);
// - the word that receives the value if all have signalled, and its copy in the host's memory;
// - for each other GPU its word for this GPU.
#pragma once

#include "device/batch.hpp"
#include "kernels/gpu/port.hpp"

namespace qccl::QCCL_GPU {

// Returns true if another launch should have prepared this one but has not.
QCCL_DEVICE bool is_called_off(const Batch &batch) {
    return batch.awaited_word != nullptr && *batch.awaited_word != batch.awaited;
}

QCCL_DEVICE uint64_t *word_of(const Operand &operand) {
    return reinterpret_cast<uint64_t *>(operand.at);
}

QCCL_DEVICE void barrier_with_others(const Batch &batch) {
    QCCL_SHARED(uint32_t, missing, block_threads);
    const auto others = batch.tensor[0].sources - 2;
    const Operand &own = batch.operand[0];
    const uint64_t value = own.coded;
    const unsigned self = thread();
    if (self < others) flag_store(word_of(batch.operand[3 + self]), value);
    barrier(); // all GPUs are signalled before any thread waits
    uint32_t is_missing = 0;
    if (self < others) {
        const uint64_t *const word = word_of(own) + self;
        is_missing = 1;
        for (uint64_t look = 0; look < own.begin && is_missing != 0; look++) {
            if (flag_load(word) == value)
                is_missing = 0;
            else
                pause();
        }
    }
    missing[self] = is_missing;
    barrier();
    if (self != 0) return;
    uint32_t total = 0;
    for (unsigned i = 0; i < others; i++) total += missing[i];
    const uint64_t met = total == 0 ? value : 0;
    *word_of(batch.operand[1]) = met;
    flag_store(word_of(batch.operand[2]), met);
}

} // namespace qccl::QCCL_GPU
