#include "api/fork_mark.hpp"

#include "base/system_error.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace qccl {

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Result<ForkMark> ForkMark::create() {
    void *page =
        mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return cannot("map a page");
    // Where this fails (Linux before 4.14, some emulators) children go undetected.
    madvise(page, page_bytes(), MADV_WIPEONFORK);
    ForkMark mark(static_cast<uint8_t *>(page));
    *mark.page_ = 1;
    return mark;
}

void ForkMark::Unmap::operator()(uint8_t *page) const { munmap(page, page_bytes()); }

} // namespace qccl
