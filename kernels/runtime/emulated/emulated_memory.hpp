// The memory of the emulated GPUs: their own, which other processes can open, and host memory that
// they reach; and Outcome, which says how a call of the emulated runtime or a piece of work in a
// stream has ended. Pieces is not thread-safe: callers hold the runtime's mutex.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"
#include "qccl/emulated.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace qccl::emulated {

// ---- Outcomes

struct Outcome {
    qcclEmulatedResult_t result = qcclEmulatedSuccess;
    std::string sentence; // empty: the text of the result code says everything

    Outcome() = default;
    Outcome(int32_t code) : result(code) {}
    Outcome(int32_t code, std::string text) : result(code), sentence(std::move(text)) {}
    // Errors of the operating system are reported as a lack of memory.
    Outcome(const Error &error) : result(qcclEmulatedErrorMemoryAllocation), sentence(error.text) {}

    bool is_ok() const { return result == qcclEmulatedSuccess; }
};

// ---- Memory

inline constexpr int device_count = 8;
constexpr int lanes_of(int device) { return device % 2 == 0 ? 32 : 64; }

struct Piece {
    enum class Kind : uint8_t { device, pooled, host, registered, opened };
    Kind kind = Kind::device;
    int device = 0; // owner; host memory: the GPU of the thread that asked for it
    std::byte *base = nullptr;
    size_t bytes = 0;
    std::byte *mapping = nullptr; // address to unmap; null: nothing is unmapped
    size_t mapped_bytes = 0;
    FileDescriptor file;
    uint32_t uses = 1; // opened: opens that are not closed yet

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
    // Allocates memory of a GPU, with guard bytes around it.
    Outcome allocate(Piece::Kind kind, int device, size_t bytes, void **memory);
    Outcome allocate_host(int device, size_t bytes, void **memory);
    Outcome register_host(int device, void *memory, size_t bytes);
    // Releases the piece that begins at `memory` and is of one of `kinds`, and checks its guard
    // bytes. Returns `refusal` if there is no such piece.
    Outcome release(void *memory, std::initializer_list<Piece::Kind> kinds, int32_t refusal);

    Outcome name(void *memory, qcclEmulatedIpcMemHandle_t *handle) const;
    Outcome open(const qcclEmulatedIpcMemHandle_t &handle, void **memory);
    Outcome close(void *memory);
    // Returns the GPU whose memory a handle names; -1 if the bytes are not a handle.
    static int device_of(const qcclEmulatedIpcMemHandle_t &handle);

    // Returns the piece that contains `at`; null if the GPUs do not know this memory.
    const Piece *find(const void *at) const;
    // Returns an error if something has written beside memory of the GPU.
    Outcome check_guards(int device) const;

    size_t count() const { return pieces_.size(); }
    void limit(size_t bytes) { limit_ = bytes; }

private:
    Outcome keep(Piece piece, void **memory);

    std::map<uintptr_t, Piece> pieces_; // by first byte
    std::array<size_t, device_count> used_{};
    size_t limit_ = SIZE_MAX;
};

} // namespace qccl::emulated
