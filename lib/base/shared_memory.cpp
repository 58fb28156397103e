// Allocates shared memory in sealed memfds and maps it with mmap and mremap. Recognises files by
// what fstat reports.
#include "base/shared_memory.hpp"

#include "base/system.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace qccl {

// ---- Files and their description

Result<SharedFile> describe(int file) {
    struct stat status {};
    if (fstat(file, &status) != 0)
        return Error::make(Code::system_error, "file %d: %s", file, describe_errno(errno).c_str());
    return SharedFile{.device = status.st_dev,
                      .inode = status.st_ino,
                      .bytes = static_cast<uint64_t>(status.st_size),
                      .number = file};
}

bool is_open(const SharedFile &file) {
    const auto found = describe(file.number);
    return found && *found == file;
}

// ---- Mappings

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

void Mapping::populate(size_t bytes) const {
    madvise(base_, std::min(bytes, bytes_), MADV_POPULATE_WRITE);
}

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

// ---- Shared memory

namespace {

// A signal interrupts an allocation and undoes it. A small piece is done so fast that it succeeds
// in the end.
constexpr size_t piece = size_t{1} << 20;
// The file may grow: that does no harm to processes that have it mapped.
constexpr int seals = F_SEAL_SHRINK | F_SEAL_SEAL;

Error no_memory(size_t bytes, const char *why) {
    return Error::make(Code::system_error, "cannot get %.1f MiB of shared memory: %s",
                       static_cast<double>(bytes) / 1048576, why);
}

int write_zeros(int file, size_t offset, size_t bytes) {
    static constexpr std::array<std::byte, 4096> zeros{};
    for (const size_t end = offset + bytes; offset < end;) {
        const ssize_t written = pwrite(file, zeros.data(), std::min(zeros.size(), end - offset),
                                       static_cast<off_t>(offset));
        if (written > 0)
            offset += static_cast<size_t>(written);
        else if (written == 0 || errno != EINTR)
            return written == 0 ? ENOSPC : errno;
    }
    return 0;
}

int allocate(int file, size_t offset, size_t bytes) {
    while (fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
        // Some file systems cannot allocate, such as most versions of NFS.
        if (errno == EOPNOTSUPP) return write_zeros(file, offset, bytes);
        if (errno != EINTR) return errno;
    }
    return 0;
}

} // namespace

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

size_t free_memory_bytes() {
    const std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen("/proc/meminfo", "re"),
                                                      std::fclose);
    char line[128];
    while (file && std::fgets(line, sizeof line, file.get())) {
        size_t kib;
        if (std::sscanf(line, "MemAvailable: %zu kB", &kib) == 1) return kib * 1024;
    }
    return SIZE_MAX;
}

// Beyond this limit the kernel would send SIGXFSZ, which ends the process.
static Done check_file_limit(size_t bytes) {
    rlimit limit{};
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes)
        return no_memory(bytes, "the limit on file sizes (ulimit -f) is lower");
    return {};
}

static Done allocate_all(int file, size_t offset, size_t bytes, const StillNeeds &still_needs) {
    for (size_t done = 0; done < bytes; done += piece) {
        const size_t left = bytes - done;
        if (still_needs) QCCL_TRY(still_needs(left));
        if (const int reason = allocate(file, offset + done, std::min(piece, left)))
            return no_memory(bytes, std::strerror(reason));
    }
    return {};
}

Done allocate_file(int file, size_t bytes) {
    QCCL_TRY(check_file_limit(bytes));
    return allocate_all(file, 0, bytes, {});
}

Done extend_file(int file, size_t offset, size_t bytes, const StillNeeds &still_needs) {
    QCCL_TRY(still_needs(bytes));
    QCCL_TRY(check_file_limit(offset + bytes));
    QCCL_TRY(const SharedFile found, describe(file));
    if (found.bytes < offset + bytes && ftruncate(file, static_cast<off_t>(offset + bytes)) != 0)
        return no_memory(bytes, describe_errno(errno).c_str());
    const Done done = allocate_all(file, offset, bytes, still_needs);
    if (!done) empty_file(file, offset, bytes);
    return done;
}

void empty_file(int file, size_t offset, size_t bytes) {
    constexpr int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    while (fallocate(file, punch, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0 &&
           errno == EINTR) {}
}

Result<FileDescriptor> create_shared_memory(size_t bytes, const char *name) {
    // To ask for more than there is would not fail: it would start the out-of-memory killer.
    if (free_memory_bytes() < bytes) return no_memory(bytes, std::strerror(ENOMEM));

    FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.is_open()) return no_memory(bytes, describe_errno(errno).c_str());
    QCCL_TRY(allocate_file(file.number(), bytes));
    if (fcntl(file.number(), F_ADD_SEALS, seals) != 0)
        return no_memory(bytes, describe_errno(errno).c_str());
    return file;
}

static bool may_be_shrunk(int file) {
    const int found = fcntl(file, F_GET_SEALS);
    return found < 0 || (found & F_SEAL_SHRINK) == 0; // most files cannot be sealed
}

static Done check_memory(int file, size_t bytes) {
    const auto found = describe(file);
    if (found && found->bytes == bytes && !may_be_shrunk(file)) return {};
    return Error::make(Code::system_error, "what came as shared memory is none of ours");
}

Result<Mapping> map_shared_memory(const FileDescriptor &file, size_t bytes) {
    QCCL_TRY(check_memory(file.number(), bytes));
    return Mapping::shared(file.number(), bytes);
}

static Result<FileDescriptor> open_file_of(long long pid, int number, int flags) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/fd/%d", pid, number);
    FileDescriptor file(open(path, flags | O_CLOEXEC));
    if (!file.is_open())
        return Error::make(Code::system_error, "%s: %s", path, describe_errno(errno).c_str());
    return file;
}

Result<Mapping> map_file_of(int64_t pid, const SharedFile &file) {
    // The file is examined before it is opened: to open a pipe or a device by mistake could do
    // harm.
    QCCL_TRY(const FileDescriptor place, open_file_of(pid, file.number, O_PATH));
    QCCL_TRY(const SharedFile found, describe(place.number()));
    if (found.device != file.device || found.inode != file.inode)
        return Error::make(Code::system_error, "file %d of process %lld is another one",
                           file.number, static_cast<long long>(pid));
    QCCL_TRY(const FileDescriptor memory, open_file_of(getpid(), place.number(), O_RDONLY));
    QCCL_TRY(check_memory(memory.number(), file.bytes));
    return Mapping::shared_to_read(memory.number(), file.bytes);
}

} // namespace qccl
