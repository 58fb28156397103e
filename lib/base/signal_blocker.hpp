// Blocks all signals of the current thread while it lives; threads started meanwhile never take
// any. Signals are for the program's own threads. Used to start the library's threads.
#pragma once

#include <csignal>

#include <pthread.h>

namespace qccl {

class SignalBlocker {
public:
    // A new thread inherits the mask, so no signal can reach the thread before it blocks signals
    // itself.
    SignalBlocker() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalBlocker() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalBlocker(const SignalBlocker &) = delete;
    SignalBlocker &operator=(const SignalBlocker &) = delete;

private:
    sigset_t before_;
};

} // namespace qccl
