// Allocates blocks in sealed files and finds them by address: a block begins with a page that has a
// magic number, which is read only as far as the kernel can copy it.
#include "memory/shared_block.hpp"

#include "base/system.hpp"
#include "base/types.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

namespace qccl {

size_t most_block_bytes() { return PTRDIFF_MAX - 2 * page_bytes(); }

Result<void *> allocate_block(size_t bytes) {
    const size_t page = page_bytes();
    const size_t whole = page + round_up(bytes, page);

    QCCL_TRY(FileDescriptor file, create_shared_memory(whole));
    QCCL_TRY(const SharedFile described, describe(file.number()));
    QCCL_TRY(Mapping mapping, Mapping::shared(file.number(), whole));
    std::byte *const start = mapping.release();
    new (start) SharedBlock{.file = described};
    file.release();
    return start + page;
}

// Copies memory that may not be readable. Returns 0; EFAULT if a load would be fatal; another errno
// if the kernel lets this process find out neither.
static int copy_by_kernel(const void *from, SharedBlock &to) {
    const iovec here{&to, sizeof to}, there{const_cast<void *>(from), sizeof to};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) > 0) return 0;
    if (errno == EFAULT) return EFAULT;
    // Some containers forbid process_vm_readv. A pipe does the same, but needs two free
    // descriptors.
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    const FileDescriptor in(ends[0]), out(ends[1]);
    if (write(out.number(), from, sizeof to) < 0 || read(in.number(), &to, sizeof to) < 0)
        return errno;
    return 0;
}

static Result<SharedBlock *> block_from(uintptr_t start) {
    SharedBlock found{.magic = 0};
    const int problem = copy_by_kernel(reinterpret_cast<const void *>(start), found);
    if (problem == EFAULT) return nullptr;
    if (problem != 0)
        return Error::make(Code::system_error, "cannot look at memory: %s", std::strerror(problem));
    const bool is_ours =
        found.magic == SharedBlock::our_magic && found.file.bytes % page_bytes() == 0;
    return is_ours ? reinterpret_cast<SharedBlock *>(start) : nullptr;
}

Result<SharedBlock *> block_at(void *memory) {
    const size_t page = page_bytes();
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (address % page != 0 || address <= page) return nullptr;
    return block_from(address - page);
}

void free_block(SharedBlock &block) {
    // The program may have closed the block's descriptor and opened something else.
    const FileDescriptor file(is_open(block.file) ? block.file.number : -1);
    munmap(&block, block.file.bytes);
}

// Returns the address at which the file begins that is mapped at `address`, also if its mapping has
// been split.
static std::optional<uintptr_t> file_start(uintptr_t address) {
    const std::unique_ptr<FILE, int (*)(FILE *)> maps(std::fopen("/proc/self/maps", "re"),
                                                      std::fclose);
    if (!maps) return std::nullopt;
    char line[512]; // the rest of a longer line is a file's name, in which no numbers are found
    while (std::fgets(line, sizeof line, maps.get())) {
        uintptr_t start, end, offset;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*4s %" SCNxPTR, &start, &end, &offset) ==
                3 &&
            start <= address && address < end)
            return offset <= start ? std::optional(start - offset) : std::nullopt;
    }
    return std::nullopt;
}

Result<SharedBlock *> block_around(const void *address) {
    const auto start = file_start(reinterpret_cast<uintptr_t>(address));
    const size_t page = page_bytes();
    if (!start || *start % page != 0 || reinterpret_cast<uintptr_t>(address) - *start < page)
        return nullptr;
    return block_from(*start);
}

} // namespace qccl
