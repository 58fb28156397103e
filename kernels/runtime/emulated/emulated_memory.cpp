// The memory of a GPU is a file without a name, so that other processes can open it through /proc.
// Guard bytes around the memory show writes beside it.
#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include "base/types.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl::emulated {

namespace {

constexpr size_t page = 4096;
constexpr size_t guard = 256;                 // checked bytes on either side
constexpr size_t most_dirt = size_t{1} << 20; // filled bytes of new memory; more only takes time
constexpr int guard_byte = 0xA5, dirt = 0xCD;

// The contents of an IPC handle.
struct Address {
    std::array<char, 8> magic;
    int32_t process, file, device, unused;
    uint64_t system_device, inode, bytes;
};
static_assert(sizeof(Address) <= sizeof(qcclEmulatedIpcMemHandle_t));
constexpr std::array<char, 8> magic = {'e', 'm', 'u', 'l', 'a', 't', 'e', 'd'};

Address read_address(const qcclEmulatedIpcMemHandle_t &handle) {
    Address address;
    std::memcpy(&address, handle.bytes, sizeof address);
    return address;
}

size_t mapped_bytes_for(size_t bytes) { return page + round_up(bytes + guard, page); }

Outcome refused(const char *what) {
    return {qcclEmulatedErrorMemoryAllocation,
            std::string("out of memory: ") + what + ": " + std::strerror(errno)};
}

bool is_guarded(const std::byte *at) {
    return std::all_of(at, at + guard,
                       [](std::byte byte) { return byte == std::byte{guard_byte}; });
}

Outcome check(const MemoryPiece &piece) {
    if (piece.kind != MemoryPiece::Kind::device && piece.kind != MemoryPiece::Kind::pooled)
        return {};
    const bool is_before = !is_guarded(piece.base - guard);
    if (!is_before && is_guarded(piece.base + piece.bytes)) return {};
    return {qcclEmulatedErrorGuardBytes,
            "something has written " +
                std::string(is_before ? "before the first byte" : "behind the last byte") + " of " +
                std::to_string(piece.bytes) + " bytes of GPU " + std::to_string(piece.device)};
}

void unmap(const MemoryPiece &piece) {
    if (piece.mapping) munmap(piece.mapping, piece.mapped_bytes);
}

} // namespace

Outcome MemoryPieces::keep(MemoryPiece piece, void **memory) {
    *memory = piece.base;
    pieces_.emplace(reinterpret_cast<uintptr_t>(piece.base), std::move(piece));
    return {};
}

Outcome MemoryPieces::allocate(MemoryPiece::Kind kind, int device, size_t bytes, void **memory) {
    size_t &used = used_[static_cast<size_t>(device)];
    if (bytes == 0) return qcclEmulatedErrorInvalidValue;
    if (bytes > SIZE_MAX / 4 || used > limit_ || bytes > limit_ - used)
        return qcclEmulatedErrorMemoryAllocation;
    MemoryPiece piece;
    piece.kind = kind;
    piece.device = device;
    piece.bytes = bytes;
    piece.mapped_bytes = mapped_bytes_for(bytes);
    piece.file = FileDescriptor(memfd_create("qccl-emulated-gpu", MFD_CLOEXEC));
    if (!piece.file.is_open()) return refused("memfd_create");
    if (ftruncate(piece.file.number(), static_cast<off_t>(piece.mapped_bytes)) != 0)
        return refused("ftruncate");
    void *const mapping = mmap(nullptr, piece.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                               piece.file.number(), 0);
    if (mapping == MAP_FAILED) return refused("mmap");
    piece.mapping = static_cast<std::byte *>(mapping);
    piece.base = piece.mapping + page;
    std::memset(piece.base - guard, guard_byte, guard);
    std::memset(piece.base, dirt, std::min(bytes, most_dirt));
    std::memset(piece.base + bytes, guard_byte, guard);
    used += bytes;
    return keep(std::move(piece), memory);
}

Outcome MemoryPieces::allocate_host(int device, size_t bytes, void **memory) {
    if (bytes == 0 || bytes > SIZE_MAX / 4) return qcclEmulatedErrorInvalidValue;
    MemoryPiece piece;
    piece.kind = MemoryPiece::Kind::host;
    piece.device = device;
    piece.bytes = piece.mapped_bytes = bytes;
    void *const mapping =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return refused("mmap");
    piece.base = piece.mapping = static_cast<std::byte *>(mapping);
    std::memset(piece.base, dirt, std::min(bytes, most_dirt));
    return keep(std::move(piece), memory);
}

Outcome MemoryPieces::register_host(int device, void *memory, size_t bytes) {
    if (!memory || bytes == 0) return qcclEmulatedErrorInvalidValue;
    const auto start = reinterpret_cast<uintptr_t>(memory);
    const auto next = pieces_.lower_bound(start);
    if (find(memory) || (next != pieces_.end() && next->first - start < bytes))
        return qcclEmulatedErrorHostMemoryAlreadyRegistered;
    MemoryPiece piece;
    piece.kind = MemoryPiece::Kind::registered;
    piece.device = device;
    piece.base = static_cast<std::byte *>(memory);
    piece.bytes = bytes;
    return keep(std::move(piece), &memory);
}

Outcome MemoryPieces::release(void *memory, std::initializer_list<MemoryPiece::Kind> kinds,
                              int32_t refusal) {
    const auto found = pieces_.find(reinterpret_cast<uintptr_t>(memory));
    if (found == pieces_.end() ||
        std::find(kinds.begin(), kinds.end(), found->second.kind) == kinds.end())
        return refusal;
    const MemoryPiece &piece = found->second;
    Outcome outcome = check(piece);
    if (piece.kind == MemoryPiece::Kind::device || piece.kind == MemoryPiece::Kind::pooled)
        used_[static_cast<size_t>(piece.device)] -= piece.bytes;
    unmap(piece);
    pieces_.erase(found);
    return outcome;
}

Outcome MemoryPieces::name(void *memory, qcclEmulatedIpcMemHandle_t *handle) const {
    const MemoryPiece *const piece = find(memory);
    if (!piece || piece->kind != MemoryPiece::Kind::device) return qcclEmulatedErrorInvalidValue;
    struct stat status {};
    if (fstat(piece->file.number(), &status) != 0) return qcclEmulatedErrorInvalidValue;
    const Address address{.magic = magic,
                          .process = getpid(),
                          .file = piece->file.number(),
                          .device = piece->device,
                          .unused = 0,
                          .system_device = status.st_dev,
                          .inode = status.st_ino,
                          .bytes = piece->bytes};
    *handle = {};
    std::memcpy(handle->bytes, &address, sizeof address);
    return {};
}

int MemoryPieces::device_of(const qcclEmulatedIpcMemHandle_t &handle) {
    const Address address = read_address(handle);
    const bool is_known = address.magic == magic && address.device >= 0;
    return is_known && address.device < device_count ? address.device : -1;
}

Outcome MemoryPieces::open(const qcclEmulatedIpcMemHandle_t &handle, void **memory) {
    const Address address = read_address(handle);
    if (device_of(handle) < 0 || address.process == getpid()) return qcclEmulatedErrorInvalidValue;
    const std::string path =
        "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.file);
    MemoryPiece piece;
    piece.kind = MemoryPiece::Kind::opened;
    piece.device = address.device;
    piece.bytes = address.bytes;
    piece.mapped_bytes = mapped_bytes_for(address.bytes);
    piece.file = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    struct stat status {};
    if (!piece.file.is_open() || fstat(piece.file.number(), &status) != 0 ||
        status.st_dev != address.system_device || status.st_ino != address.inode ||
        static_cast<size_t>(status.st_size) != piece.mapped_bytes)
        return {qcclEmulatedErrorInvalidValue, "the memory of a handle is gone"};
    for (auto &[start, known] : pieces_) {
        struct stat other {};
        if (known.kind != MemoryPiece::Kind::opened || fstat(known.file.number(), &other) != 0 ||
            other.st_dev != status.st_dev || other.st_ino != status.st_ino)
            continue;
        known.uses++;
        *memory = known.base;
        return {};
    }
    void *const mapping = mmap(nullptr, piece.mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                               piece.file.number(), 0);
    if (mapping == MAP_FAILED) return refused("mmap");
    piece.mapping = static_cast<std::byte *>(mapping);
    piece.base = piece.mapping + page;
    return keep(std::move(piece), memory);
}

Outcome MemoryPieces::close(void *memory) {
    const auto found = pieces_.find(reinterpret_cast<uintptr_t>(memory));
    if (found == pieces_.end() || found->second.kind != MemoryPiece::Kind::opened)
        return qcclEmulatedErrorInvalidValue;
    if (--found->second.uses > 0) return {};
    unmap(found->second);
    pieces_.erase(found);
    return {};
}

const MemoryPiece *MemoryPieces::find(const void *at) const {
    auto behind = pieces_.upper_bound(reinterpret_cast<uintptr_t>(at));
    if (behind == pieces_.begin()) return nullptr;
    const MemoryPiece &piece = (--behind)->second;
    return piece.holds(at, 1) ? &piece : nullptr;
}

Outcome MemoryPieces::check_guards(int device) const {
    for (const auto &[start, piece] : pieces_)
        if (piece.device == device)
            if (Outcome outcome = check(piece); !outcome.is_ok()) return outcome;
    return {};
}

} // namespace qccl::emulated
