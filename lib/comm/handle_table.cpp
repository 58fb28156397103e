// Implements the epoch of a process: a word in a page that the kernel zeroes in a forked child.
#include "comm/handle_table.hpp"

#include "base/system.hpp"

#include <new>

#include <sys/mman.h>
#include <unistd.h>

namespace qccl {

namespace {

using EpochWord = std::atomic<uint64_t>;

constinit EpochWord no_epoch{0};
// The latest epoch of this process and its ancestors. Unlike the epoch itself, this word is copied
// to a child.
constinit EpochWord latest_epoch{0};

Result<EpochWord *> map_word() {
    const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *const page =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return cannot("map a page");
    // If this fails (Linux before 4.14, some emulators), forked children are not detected.
    madvise(page, bytes, MADV_WIPEONFORK);
    EpochWord *found = &no_epoch, *const made = new (page) EpochWord(0);
    if (fork_detector::epoch_word.compare_exchange_strong(found, made)) return made;
    munmap(page, bytes); // another thread was first
    return found;
}

} // namespace

constinit std::atomic<EpochWord *> fork_detector::epoch_word{&no_epoch};

Result<uint64_t> begin_epoch() {
    EpochWord *word = fork_detector::epoch_word.load(std::memory_order_acquire);
    if (word == &no_epoch) {
        QCCL_TRY(word, map_word());
    }
    uint64_t epoch = word->load();
    if (epoch != 0) return epoch;
    const uint64_t next = latest_epoch.fetch_add(1) + 1;
    return word->compare_exchange_strong(epoch, next) ? next : epoch;
}

} // namespace qccl
