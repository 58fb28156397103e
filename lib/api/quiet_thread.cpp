#include "api/quiet_thread.hpp"

#include "api/boundary.hpp"

#include <cinttypes>
#include <csignal>
#include <cstring>

#include <pthread.h>
#include <sched.h>

namespace qccl {

Result<QuietThread> QuietThread::start(const char *name, std::function<void()> body) {
    // A new thread inherits the mask, so that no signal can reach it before it could block them.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    QuietThread quiet;
    const Done started = contained([&]() -> Done {
        quiet.thread_ = std::thread(std::move(body));
        return {};
    });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (!started)
        return Error::make(Code::system_error, "cannot start a thread: %s", started.error().text);

    pthread_setname_np(quiet.thread_.native_handle(), name);
    return quiet;
}

Done QuietThread::pin(uint64_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
    const int error = pthread_setaffinity_np(thread_.native_handle(), sizeof set, &set);
    if (error == 0) return {};
    return Error::make(Code::invalid_argument,
                       "QCCL_PROGRESS_CPU=%" PRIu64 ": this process cannot run there: %s", cpu,
                       strerror(error));
}

} // namespace qccl
