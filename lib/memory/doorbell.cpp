// Implements doorbells with the kernel's futex and membarrier and with local sockets.
#include "memory/doorbell.hpp"

#include "base/system.hpp"

#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qccl {

namespace {

// FUTEX_PRIVATE_FLAG is not set, because the word may lie in memory that processes share.
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

Result<SocketBell> SocketBell::make() {
    SocketBell bell;
    QCCL_TRY(bell.name_, draw_name());
    bell.socket_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const AbstractAddress address(bell.name_);
    if (bell.is_open() && bind(bell.descriptor(), address.get(), address.bytes) == 0) return bell;
    return cannot("make a socket");
}

// If the socket's queue is full, this ring is dropped: the owner has yet to read the earlier ones.
void SocketBell::ring(const Name &other) const {
    const AbstractAddress address(other);
    sendto(socket_.number(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, address.get(), address.bytes);
}

void SocketBell::silence() const {
    char ring;
    while (recv(socket_.number(), &ring, sizeof ring, MSG_DONTWAIT) > 0) {}
}

void Waiter::prepare() {
    is_prepared_ = true;
    bell_.is_asleep.exchange(1, std::memory_order_seq_cst);
    if (fences_ == Fences::by_sleeper)
        syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::sleep(std::chrono::nanoseconds longest) {
    const timespec timeout{longest.count() / std::nano::den, longest.count() % std::nano::den};
    futex(bell_.rings, FUTEX_WAIT, heard_, &timeout);
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::sleep(std::chrono::nanoseconds longest, const SocketBell &bell, int other) {
    const timespec timeout{longest.count() / std::nano::den, longest.count() % std::nano::den};
    pollfd polls[] = {{bell.descriptor(), POLLIN, 0}, {other, POLLIN, 0}};
    ppoll(polls, std::size(polls), &timeout, nullptr);
    if (polls[0].revents != 0) bell.silence();
    heard_ = bell_.rings.load(std::memory_order_acquire);
}

void Waiter::cancel() {
    is_prepared_ = false;
    bell_.is_asleep.store(0, std::memory_order_relaxed);
}

} // namespace qccl
