// Starts a thread with all signals blocked, names it and pins it.
#include "base/service_thread.hpp"

#include "base/exception_boundary.hpp"
#include "base/service_thread.hpp"

#include <cinttypes>
#include <cstring>

#include <pthread.h>
#include <sched.h>

namespace qccl {

Result<ServiceThread> ServiceThread::start(const char *name, std::function<void()> body) {
    ServiceThread quiet;
    const Done started = exception_boundary([&]() -> Done {
        const SignalBlocker while_it_starts;
        quiet.thread_ = std::thread(std::move(body));
        return {};
    });
    if (!started)
        return Error::make(Code::system_error, "cannot start a thread: %s", started.error().text);

    pthread_setname_np(quiet.thread_.native_handle(), name);
    return quiet;
}

Done ServiceThread::pin(uint64_t cpu) {
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
