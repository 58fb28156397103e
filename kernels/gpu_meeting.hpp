// GPUs meet: each tells the others that its line is written and waits, for a bounded number of
// looks, until all have told it. Whoever does not see all of them come says so, and the host does
// the waiting; nobody spins for a process that may not even run. A batch has one tensor of
// one value, whose operands are, in this order,
//   the words in which the others tell this one, `coded` the value and `begin` how many looks;
//   the word that then has the value if all have come, and its twin in the host's memory;
//   in turn each other's word for this one.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/port.hpp"

namespace qccl::QCCL_GPU {

// The launch is one that another was to prepare, which has not.
QCCL_DEVICE bool is_called_off(const Batch &batch) {
    return batch.awaited_word != nullptr && *batch.awaited_word != batch.awaited;
}

QCCL_DEVICE uint64_t *word_of(const Operand &operand) {
    return reinterpret_cast<uint64_t *>(operand.at);
}

QCCL_DEVICE void meet_others(const Batch &batch) {
    QCCL_SHARED(uint32_t, missing, block_threads);
    const auto others = batch.tensor[0].sources - 2;
    const Operand &own = batch.operand[0];
    const uint64_t value = own.coded;
    const unsigned self = thread();
    if (self < others) tell(word_of(batch.operand[3 + self]), value);
    barrier(); // all are told before anyone waits
    uint32_t is_missing = 0;
    if (self < others) {
        const uint64_t *const word = word_of(own) + self;
        is_missing = 1;
        for (uint64_t look = 0; look < own.begin && is_missing != 0; look++) {
            if (hear(word) == value)
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
    tell(word_of(batch.operand[2]), met);
}

} // namespace qccl::QCCL_GPU
