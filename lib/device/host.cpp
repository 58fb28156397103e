#include "device/host.hpp"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace qccl {
namespace {

// From this size on a huge page saves more misses of the TLB than it wastes memory.
constexpr size_t huge_page_bytes = size_t{2} << 20;

Result<std::byte *> host_allocate(Gpu *, size_t bytes) {
    // Pages of one's own rather than the heap's: aligned beyond any vector, zeroed, and given back
    // whole.
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error::make(Code::system_error, "cannot allocate %zu bytes of host memory: %s",
                           bytes, std::strerror(errno));
    // Only a hint: kernels without huge pages refuse it, and all is well.
    if (bytes >= huge_page_bytes) (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return static_cast<std::byte *>(memory);
}

void host_free(Gpu *, std::byte *memory, size_t bytes) { munmap(memory, bytes); }

} // namespace

Device host_device(uint32_t tiers) {
    return {.kernels = &best_kernels(tiers),
            .gpu = nullptr,
            .allocate = host_allocate,
            .free = host_free};
}

} // namespace qccl
