// qcclMemAlloc: memory that other processes can map. In front of it lies a page that says what it
// is. Knows no communicator: any memory works in any collective.
#include "api/boundary.hpp"
#include "transport/shared_memory.hpp"

#include <cstdint>
#include <cstring>
#include <optional>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace qccl {

namespace {

struct SegmentHeader {
    static constexpr uint64_t magic = 0x544E454D47455351; // "QSEGMENT"
    uint64_t seen = magic;
    uint64_t bytes = 0; // of header page and memory
    int32_t file = -1;  // what peers map
};

} // namespace

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

static Result<void *> allocate_segment(size_t bytes) {
    const size_t page = page_bytes();
    if (bytes == 0) return Error::make(Code::invalid_argument, "bytes is 0");
    if (bytes > PTRDIFF_MAX - 2 * page)
        return Error::make(Code::invalid_argument, "bytes is %zu, more than memory can have",
                           bytes);
    const size_t whole = page + (bytes + page - 1) / page * page;

    QCCL_TRY(FileDescriptor file, create_shared_memory(whole));
    QCCL_TRY(Mapping mapping, Mapping::shared(file.number(), whole));
    const SegmentHeader header{.bytes = whole, .file = file.release()};
    std::byte *const start = mapping.release();
    std::memcpy(start, &header, sizeof header);
    return start + page;
}

// Reads what may not be readable: a pipe's write answers EFAULT where a load would be fatal.
static std::optional<SegmentHeader> peek(const void *address) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const FileDescriptor in(ends[0]), out(ends[1]);
    SegmentHeader header;
    constexpr auto bytes = static_cast<ssize_t>(sizeof header);
    if (write(out.number(), address, sizeof header) != bytes ||
        read(in.number(), &header, sizeof header) != bytes)
        return std::nullopt;
    return header;
}

static Done free_segment(void *pointer) {
    const size_t page = page_bytes();
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    void *start = reinterpret_cast<void *>(address - page);
    const auto header =
        address % page == 0 && address > page ? peek(start) : std::optional<SegmentHeader>();
    if (!header || header->seen != SegmentHeader::magic || header->bytes % page != 0)
        return Error::make(Code::invalid_argument,
                           "pointer is %p, which qcclMemAlloc did not give (or it has been freed)",
                           pointer);
    munmap(start, header->bytes);
    close(header->file);
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclMemAlloc(void **pointer_out, size_t bytes) {
    return guarded([=]() -> Done {
        if (!pointer_out) return Error::make(Code::invalid_argument, "pointer_out is NULL");
        QCCL_TRY(*pointer_out, allocate_segment(bytes));
        return {};
    });
}
QCCL_TWIN(qcclMemAlloc);

qcclResult_t qcclMemFree(void *pointer) {
    return guarded([=]() -> Done {
        if (pointer) QCCL_TRY(free_segment(pointer));
        return {};
    });
}
QCCL_TWIN(qcclMemFree);
