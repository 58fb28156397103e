// The fork handlers are functions without an object, so the numbers of all hidden descriptors are
// kept in one list for the process.
#include "base/hide_on_fork.hpp"

#include <mutex>
#include <vector>

#include <fcntl.h>
#include <pthread.h>

namespace qccl {

namespace {

struct Shielded {
    std::mutex mutex;
    std::vector<int> numbers;
};

Shielded &shielded() {
    // Never destroyed: a process may fork while it exits.
    static Shielded *const all = [] {
        pthread_atfork([] { shielded().mutex.lock(); }, [] { shielded().mutex.unlock(); },
                       [] {
                           Shielded &inherited = shielded();
                           const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
                           for (const int number : inherited.numbers)
                               if (nothing < 0 || dup3(nothing, number, O_CLOEXEC) < 0)
                                   close(number);
                           if (nothing >= 0) close(nothing);
                           inherited.mutex.unlock();
                       });
        return new Shielded;
    }();
    return *all;
}

} // namespace

HideOnFork::HideOnFork(const FileDescriptor &descriptor) : number_(descriptor.number()) {
    if (number_ == none) return;
    Shielded &all = shielded();
    const std::lock_guard guard(all.mutex);
    all.numbers.push_back(number_);
}

HideOnFork::~HideOnFork() {
    if (number_ == none) return;
    Shielded &all = shielded();
    const std::lock_guard guard(all.mutex);
    std::erase(all.numbers, number_);
}

} // namespace qccl
