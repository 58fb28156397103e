// Implements mappings with mmap and mremap.
#include "transport/mapping.hpp"

#include "base/system_error.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace qccl {

Result<Mapping> Mapping::map(size_t bytes, int flags, int file, int protection, size_t offset) {
    return mapping_at(mmap(nullptr, bytes, protection, flags, file, static_cast<off_t>(offset)),
                      bytes);
}

Result<Mapping> Mapping::mapping_at(void *base, size_t bytes) {
    if (base == MAP_FAILED)
        return Error::make(Code::system_error, "cannot map %zu bytes: %s", bytes,
                           describe_errno(errno).c_str());
    Mapping mapping;
    mapping.base_ = static_cast<std::byte *>(base);
    mapping.bytes_ = bytes;
    return mapping;
}

// The request number is invalid, and the kernel reads the mask before it checks the request: it
// returns EFAULT if it cannot read the mask. Other system calls would need a descriptor of the
// file.
bool Mapping::is_backed() const {
    constexpr size_t mask_bytes = 8;
    constexpr int no_request = -1;
    const std::byte *const mask = base_ + bytes_ - mask_bytes;
    return syscall(SYS_rt_sigprocmask, no_request, mask, nullptr, mask_bytes) == 0 ||
           errno != EFAULT;
}

void Mapping::populate() const { madvise(base_, bytes_, MADV_POPULATE_WRITE); }

static constexpr int read_and_write = PROT_READ | PROT_WRITE;

Result<Mapping> Mapping::anonymous(size_t bytes) {
    return map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, read_and_write);
}
Result<Mapping> Mapping::shared(int file, size_t bytes, size_t offset) {
    return map(bytes, MAP_SHARED, file, read_and_write, offset);
}
// With an old size of 0, the old mapping stays.
Result<Mapping> Mapping::again(std::byte *mapped, size_t bytes) {
    return mapping_at(mremap(mapped, 0, bytes, MREMAP_MAYMOVE), bytes);
}
Result<Mapping> Mapping::shared_to_read(int file, size_t bytes) {
    return map(bytes, MAP_SHARED, file, PROT_READ);
}

} // namespace qccl
