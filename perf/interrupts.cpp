// Implements interrupts.hpp by blocking the signals and waiting with sigwaitinfo() and
// sigtimedwait().
#include "perf/interrupts.hpp"

namespace qccl::perf {

static bool is_ignored(int signal) {
    struct sigaction action {};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

Interrupts::Interrupts() {
    sigemptyset(&taken_);
    sigaddset(&taken_, rank_ended);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP})
        if (!is_ignored(signal)) sigaddset(&taken_, signal);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
}

Interrupts::~Interrupts() {
    // Consume pending signals, so that they are not delivered when the mask is restored.
    while (wait(std::chrono::milliseconds(0)) != 0) {}
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Interrupts::wait(std::chrono::milliseconds most) const {
    const timespec timeout{.tv_sec = most.count() / 1000,
                           .tv_nsec = most.count() % 1000 * 1'000'000};
    const int signal =
        most == for_ever ? sigwaitinfo(&taken_, nullptr) : sigtimedwait(&taken_, nullptr, &timeout);
    return signal > 0 ? signal : 0;
}

void Interrupts::hand_to_rank() const {
    sigset_t mask = before_;
    for (const int signal : {SIGINT, SIGHUP})
        if (sigismember(&taken_, signal) == 1) sigaddset(&mask, signal);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
}

} // namespace qccl::perf
