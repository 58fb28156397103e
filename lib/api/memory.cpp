// qcclMemAlloc: memory that other processes can map. In front of it lies a page that says what it
// is. Knows no communicator: any memory works in any collective.
#include "api/boundary.hpp"

#include <cerrno>
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

class File {
public:
    explicit File(int file) : file_(file) {}
    ~File() {
        if (file_ >= 0) close(file_);
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;
    int get() const { return file_; }
    int release() { return std::exchange(file_, -1); }

private:
    int file_;
};

} // namespace

static size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

static Error no_memory(size_t bytes) {
    return Error::make(Code::system_error, "cannot get %zu bytes of shared memory: %s", bytes,
                       strerror(errno));
}

static Result<void *> allocate_segment(size_t bytes) {
    const size_t page = page_bytes();
    if (bytes == 0) return Error::make(Code::invalid_argument, "bytes is 0");
    if (bytes > PTRDIFF_MAX - 2 * page)
        return Error::make(Code::invalid_argument, "bytes is %zu, more than memory can have",
                           bytes);
    const size_t whole = page + (bytes + page - 1) / page * page;

    File file(memfd_create("qccl-memory", MFD_CLOEXEC));
    if (file.get() < 0 || ftruncate(file.get(), static_cast<off_t>(whole)) != 0)
        return no_memory(bytes);
    void *start = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (start == MAP_FAILED) return no_memory(bytes);
    const SegmentHeader header{.bytes = whole, .file = file.release()};
    std::memcpy(start, &header, sizeof header);
    return static_cast<std::byte *>(start) + page;
}

// Reads what may not be readable: a pipe's write answers EFAULT where a load would be fatal.
static std::optional<SegmentHeader> peek(const void *address) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
    const File in(ends[0]), out(ends[1]);
    SegmentHeader header;
    constexpr auto bytes = static_cast<ssize_t>(sizeof header);
    if (write(out.get(), address, sizeof header) != bytes ||
        read(in.get(), &header, sizeof header) != bytes)
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
