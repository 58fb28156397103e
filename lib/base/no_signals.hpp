// While it lives, this thread takes no signals, and threads that it starts never will: signals are
// the program's, for the program's threads.
#pragma once

#include <csignal>

#include <pthread.h>

namespace qccl {

class NoSignals {
public:
    // A new thread inherits the mask, so that no signal can reach it before it could block them.
    NoSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    NoSignals(const NoSignals &) = delete;
    NoSignals &operator=(const NoSignals &) = delete;

private:
    sigset_t before_;
};

} // namespace qccl
