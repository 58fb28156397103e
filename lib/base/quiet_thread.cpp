#include "base/quiet_thread.hpp"

#include "base/contained.hpp"
#include "base/no_signals.hpp"

#include <cinttypes>
#include <cstring>

#include <pthread.h>
#include <sched.h>

namespace qccl {

Result<QuietThread> QuietThread::start(const char *name, std::function<void()> body) {
    QuietThread quiet;
    const Done started = contained([&]() -> Done {
        const NoSignals while_it_starts;
        quiet.thread_ = std::thread(std::move(body));
        return {};
    });
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
