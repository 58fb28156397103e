#include "api/shared_block.hpp"

#include "transport/shared_memory.hpp"

#include <atomic>
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

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

Result<void *> allocate_block(size_t bytes) {
    const size_t page = page_bytes();
    if (bytes == 0) return Error::make(Code::invalid_argument, "bytes is 0");
    if (bytes > PTRDIFF_MAX - 2 * page)
        return Error::make(Code::invalid_argument, "bytes is %zu, more than memory can have",
                           bytes);
    const size_t whole = page + (bytes + page - 1) / page * page;

    QCCL_TRY(FileDescriptor file, create_shared_memory(whole));
    QCCL_TRY(const SharedFile described, describe(file.number()));
    QCCL_TRY(Mapping mapping, Mapping::shared(file.number(), whole));
    std::byte *const start = mapping.release();
    new (start) SharedBlock{.file = described};
    file.release();
    return start + page;
}

// Copies what may not be readable, and answers EFAULT where a load would be fatal; or says why it
// can tell neither.
static int copy_by_kernel(const void *from, SharedBlock &to) {
    const iovec here{&to, sizeof to}, there{const_cast<void *>(from), sizeof to};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) > 0) return 0;
    if (errno == EFAULT) return EFAULT;
    // Some containers forbid that. A pipe serves as well, but needs two free descriptors.
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    const FileDescriptor in(ends[0]), out(ends[1]);
    if (write(out.number(), from, sizeof to) < 0 || read(in.number(), &to, sizeof to) < 0)
        return errno;
    return 0;
}

// Whether a block starts there.
static Result<bool> is_block(uintptr_t start, const char *argument, const void *given) {
    SharedBlock found{.magic = 0};
    const int problem = copy_by_kernel(reinterpret_cast<const void *>(start), found);
    if (problem != 0 && problem != EFAULT)
        return Error::make(Code::system_error,
                           "cannot tell whether qcclMemAlloc gave %s, which is %p: %s", argument,
                           given, std::strerror(problem));
    return problem == 0 && found.magic == SharedBlock::our_magic &&
           found.file.bytes % page_bytes() == 0;
}

Done free_block(void *memory) {
    const size_t page = page_bytes();
    const auto address = reinterpret_cast<uintptr_t>(memory);
    bool is_ours = address % page == 0 && address > page;
    if (is_ours) {
        QCCL_TRY(is_ours, is_block(address - page, "pointer", memory));
    }
    if (!is_ours)
        return Error::make(Code::invalid_argument,
                           "pointer is %p, which qcclMemAlloc did not give (or it has been freed)",
                           memory);
    auto *const block = reinterpret_cast<SharedBlock *>(address - page);
    if (std::atomic_ref(block->registrations).load(std::memory_order_acquire) != 0)
        return Error::make(Code::invalid_usage,
                           "pointer is %p, which is registered with a communicator; "
                           "qcclCommDeregister or the end of the communicator comes first",
                           memory);
    // The program may have closed ours and opened something else.
    const FileDescriptor file(is_open(block->file) ? block->file.number : -1);
    munmap(block, block->file.bytes);
    return {};
}

// Where the file begins that is mapped at the address; the start of a mapping that has been split
// is found all the same.
static std::optional<uintptr_t> file_start(uintptr_t address) {
    const std::unique_ptr<FILE, int (*)(FILE *)> maps(std::fopen("/proc/self/maps", "re"),
                                                      std::fclose);
    if (!maps) return std::nullopt;
    char line[512]; // a longer one continues with its file's name, where no number is looked for
    while (std::fgets(line, sizeof line, maps.get())) {
        uintptr_t start, end, offset;
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*4s %" SCNxPTR, &start, &end, &offset) ==
                3 &&
            start <= address && address < end)
            return offset <= start ? std::optional(start - offset) : std::nullopt;
    }
    return std::nullopt;
}

Result<SharedBlock *> find_block(const void *buffer, size_t bytes) {
    const auto address = reinterpret_cast<uintptr_t>(buffer);
    const auto start = file_start(address);
    bool is_ours = start && *start % page_bytes() == 0 && address - *start >= page_bytes();
    if (is_ours) {
        QCCL_TRY(is_ours, is_block(*start, "buffer", buffer));
    }
    if (!is_ours)
        return Error::make(
            Code::invalid_argument,
            "buffer is %p, which is not memory from qcclMemAlloc; allocate it there, "
            "or leave it unregistered: any memory works in any collective",
            buffer);
    auto *const block = reinterpret_cast<SharedBlock *>(*start);
    const uint64_t rest = block->file.bytes - (address - *start);
    if (bytes <= rest) return block;
    return Error::make(Code::invalid_argument,
                       "bytes is %zu, but from buffer on qcclMemAlloc gave only %" PRIu64, bytes,
                       rest)
        .compared(static_cast<int64_t>(rest), static_cast<int64_t>(bytes));
}

} // namespace qccl
