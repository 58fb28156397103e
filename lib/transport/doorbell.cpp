// Doorbells over the kernel's futex and membarrier.
#include "transport/doorbell.hpp"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qccl {

namespace {

// Not FUTEX_PRIVATE_FLAG: the word may lie in memory that processes share.
void futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *timeout) {
    syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

} // namespace

bool register_fences() {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void ring(Bell &bell) {
    bell.rings.fetch_add(1, std::memory_order_release);
    futex(bell.rings, FUTEX_WAKE, INT_MAX, nullptr);
}

void Sleeper::lie_down() {
    is_lying_ = true;
    bell_.is_asleep.exchange(1, std::memory_order_seq_cst);
    if (fences_ == Fences::by_sleeper)
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Sleeper::sleep(std::chrono::nanoseconds longest) {
    const timespec timeout{longest.count() / std::nano::den, longest.count() % std::nano::den};
    futex(bell_.rings, FUTEX_WAIT, heard_, &timeout);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Sleeper::get_up() {
    is_lying_ = false;
    bell_.is_asleep.store(0, std::memory_order_relaxed);
}

} // namespace qccl
