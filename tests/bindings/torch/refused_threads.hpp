// Lets a test refuse threads: the system's pthread_create stands behind the one of this file. One
// source of a test program includes it. Only threads that the calling thread would make are
// refused.
#pragma once

#include <cerrno>

#include <dlfcn.h>
#include <pthread.h>

namespace {
thread_local bool are_threads_refused = false;
}

// Stands in front of the system's function, which a test lets refuse threads that this thread
// makes.
extern "C" __attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
               void *argument) noexcept {
    using Function = decltype(&pthread_create);
    static const auto of_system = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_create"));
    if (are_threads_refused) return EAGAIN;
    return of_system(thread, attributes, start, argument);
}

namespace {

class NoThreads {
public:
    NoThreads() { are_threads_refused = true; }
    NoThreads(const NoThreads &) = delete;
    NoThreads &operator=(const NoThreads &) = delete;
    ~NoThreads() { are_threads_refused = false; }
};

} // namespace
