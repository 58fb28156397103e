// Memory that the emulated GPUs know: pieces of their own, which other processes can open, and what
// of the host's they reach. Knows no streams. Not thread-safe: the runtime's mutex is held.
#pragma once

#include "base/file_descriptor.hpp"
#include "kernels/emulated_runtime/outcome.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace qccl::emulated {

inline constexpr int device_count = 8;
constexpr int lanes_of(int device) { return device % 2 == 0 ? 32 : 64; }

struct Piece {
    enum class Kind : uint8_t { device, pooled, host, registered, opened };
    Kind kind = Kind::device;
    int device = 0; // whose; host's: the GPU of whoever asked
    std::byte *base = nullptr;
    size_t bytes = 0;
    std::byte *mapping = nullptr; // what is unmapped in the end
    size_t mapped_bytes = 0;
    FileDescriptor file;
    uint32_t uses = 1; // opened: how often

    bool is_of_a_gpu() const {
        return kind == Kind::device || kind == Kind::pooled || kind == Kind::opened;
    }
    bool holds(const void *at, size_t count) const {
        const auto start = static_cast<size_t>(static_cast<const std::byte *>(at) - base);
        return start <= bytes && count <= bytes - start;
    }
};

class Pieces {
public:
    // Of a GPU, with guard bytes around.
    Outcome allocate(Piece::Kind kind, int device, size_t bytes, void **memory);
    Outcome allocate_host(int device, size_t bytes, void **memory);
    Outcome register_host(int device, void *memory, size_t bytes);
    // What begins there and is of the kind; its guard bytes are looked at.
    Outcome release(void *memory, std::initializer_list<Piece::Kind> kinds, int32_t refusal);

    Outcome name(void *memory, qcclEmulatedIpcMemHandle_t *handle) const;
    Outcome open(const qcclEmulatedIpcMemHandle_t &handle, void **memory);
    Outcome close(void *memory);
    // Whose memory a handle leads to.
    static int device_of(const qcclEmulatedIpcMemHandle_t &handle);

    // The piece that `at` lies in; null where the GPUs know none.
    const Piece *find(const void *at) const;
    // Whether nothing has written beside a GPU's memory.
    Outcome check_guards(int device) const;

    size_t count() const { return pieces_.size(); }
    void limit(size_t bytes) { limit_ = bytes; }

private:
    Outcome keep(Piece piece, void **memory);

    std::map<uintptr_t, Piece> pieces_; // by where they begin
    std::array<size_t, device_count> used_{};
    size_t limit_ = SIZE_MAX;
};

} // namespace qccl::emulated
