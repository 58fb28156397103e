// The calls that a communicator made lately, by their C arguments: a repeated call finds its
// program with one comparison. Used by collectives.cpp inside the communicator's entry guard; not
// thread-safe.
#pragma once

#include "api/program_cache.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace qccl {

// The arguments of a call that decide its program: numbers and handles as C passes them, unchecked.
struct CallKey {
    int32_t collective = -1;
    int32_t type = 0, op = 0, root = 0;
    uint64_t count = 0;
    const void *codec = nullptr;         // of the call's config
    std::array<uint64_t, 4> algorithm{}; // of the call's config: the name, padded with zeros

    bool operator==(const CallKey &) const = default;
    // Returns false if the name is too long for the key, or empty, which would look like no name.
    bool set_algorithm(const char *text) {
        const size_t length = strnlen(text, sizeof algorithm);
        if (length == 0 || length == sizeof algorithm) return false;
        std::memcpy(algorithm.data(), text, length);
        return true;
    }
};

struct CachedCall {
    CallKey call_key;
    ProgramKey key;
    ProgramRef program;
};

class CallCache {
public:
    // Returns nullptr if the call was not made lately.
    const CachedCall *find(const CallKey &call_key) const {
        const CachedCall &entry = entries_[place(call_key)];
        return entry.call_key == call_key ? &entry : nullptr;
    }
    void remember(const CachedCall &call) { entries_[place(call.call_key)] = call; }

private:
    static constexpr unsigned bits = 4; // a user's program repeats a few shapes

    static size_t place(const CallKey &call_key) {
        const auto small = static_cast<uint64_t>(static_cast<uint32_t>(call_key.collective));
        const uint64_t codec = reinterpret_cast<uintptr_t>(call_key.codec);
        // The factor, 2^64 / golden ratio, spreads counts that are multiples of a power of 2, and
        // handles whose numbers differ in the middle bits.
        return (call_key.count ^ small << 60 ^ codec ^ call_key.algorithm[0]) *
                   0x9E3779B97F4A7C15 >>
               (64 - bits);
    }

    std::array<CachedCall, size_t{1} << bits> entries_;
};

} // namespace qccl
