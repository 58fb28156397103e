// Host memory for values: anonymous mappings, with huge pages where they pay.
#include "device/host.hpp"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace qccl {
namespace {

// From this size on, huge pages save more TLB misses than they waste memory.
constexpr size_t huge_page_bytes = size_t{2} << 20;

Result<std::byte *> host_allocate(Gpu *, size_t bytes) {
    // Own pages instead of the heap's: they are aligned beyond any vector, zeroed, and go back to
    // the kernel whole.
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return Error::make(Code::system_error, "cannot allocate %zu bytes of host memory: %s",
                           bytes, std::strerror(errno));
    // This is only a hint: a kernel without huge pages refuses it, and the memory works all the
    // same.
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
