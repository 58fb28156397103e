// Memory of the emulated AMD GPU: buffers with guards around them, in which every access is checked
// to the byte, and the windows through which flat addresses reach a group's local memory and a
// lane's scratch. Translated kernels and their tests use it, on one thread.
#pragma once

#include "wave.hpp"

#include <cstring>
#include <memory>
#include <vector>

namespace amdgpu {

// The flat address ranges of local memory and scratch. No pointer of this machine lies there.
inline constexpr u64 local_window = u64{0x7F100000} << 32, scratch_window = u64{0x7F200000} << 32;
inline constexpr u64 window_mask = ~u64{0} << 32;

class Memory {
public:
    enum class Use : u8 { read_only, read_write };
    struct Region {
        u64 begin, end;
        Use use;
    };

    // Allocates `bytes` bytes with guards around them, filled with a pattern that no test expects,
    // at `misalignment` bytes after a page boundary. The object owns the memory.
    std::byte *add(size_t bytes, size_t misalignment = 0);
    // Lets kernels access memory of the caller, which keeps it. `forget` ends the access.
    void lend(const void *begin, size_t bytes, Use use);
    void forget(const void *begin);

    // Returns the memory, or null if the `bytes` bytes at `address` do not lie within one region
    // that allows `use`.
    std::byte *reach(u64 address, size_t bytes, Use use) const;
    // Returns the bytes of all regions that kernels may write, in order of address.
    std::vector<std::byte> contents() const;
    // Writes such bytes back to the same regions.
    void restore(const std::vector<std::byte> &contents) const;

private:
    std::vector<std::unique_ptr<std::byte[]>> owned_;
    std::vector<Region> regions_;
    mutable Region last_{}; // the region of the previous access
};

enum class Space : u8 { global, flat, local, scratch };

// Returns the memory of an access. If the kernel may not access it, the wave fails and the function
// returns null.
std::byte *reach(Wave &w, Space space, u64 address, unsigned lane, size_t bytes, bool writes);

// Moves `words` registers from memory, or into memory.
template <Space space, unsigned words> void load(Wave &w, u64 r, u64 address, unsigned lane) {
    const std::byte *from = reach(w, space, address, lane, 4 * words, false);
    if (from == nullptr) return;
    for (unsigned i = 0; i < words; ++i) std::memcpy(&w.v[r + i][lane], from + 4 * i, 4);
}
template <Space space, unsigned words> void store(Wave &w, u64 r, u64 address, unsigned lane) {
    std::byte *to = reach(w, space, address, lane, 4 * words, true);
    if (to == nullptr) return;
    for (unsigned i = 0; i < words; ++i) std::memcpy(to + 4 * i, &w.v[r + i][lane], 4);
}

// Moves a value that is smaller than a register.
template <Space space, class T> T load_small(Wave &w, u64 address, unsigned lane) {
    T value{};
    if (const std::byte *from = reach(w, space, address, lane, sizeof value, false))
        std::memcpy(&value, from, sizeof value);
    return value;
}
template <Space space, class T> void store_small(Wave &w, u64 address, unsigned lane, T value) {
    if (std::byte *to = reach(w, space, address, lane, sizeof value, true))
        std::memcpy(to, &value, sizeof value);
}

// Replaces the value by f(value) and returns the old one.
template <Space space, class T, class F> T exchange(Wave &w, u64 address, unsigned lane, F &&f) {
    T value{};
    if (std::byte *at = reach(w, space, address, lane, sizeof value, true)) {
        std::memcpy(&value, at, sizeof value);
        const T changed = f(value);
        std::memcpy(at, &changed, sizeof changed);
    }
    return value;
}

// Loads scalar registers from memory.
template <unsigned words> void load_scalars(Wave &w, u64 r, u64 address) {
    const std::byte *from = reach(w, Space::global, address & ~u64{3}, 0, 4 * words, false);
    if (from != nullptr) std::memcpy(&w.s[r], from, 4 * words);
}

} // namespace amdgpu
