// The calls that a communicator made lately, as the caller spelled them: a repeated call finds its
// program with one comparison. Used under the gate.
#pragma once

#include "api/programs.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace qccl {

// What a call says of its program. Numbers and handles as C gives them, unchecked.
struct Spelling {
    int32_t collective = -1;
    int32_t type = 0, op = 0, root = 0;
    uint64_t count = 0;
    const void *codec = nullptr;         // of the call's config
    std::array<uint64_t, 4> algorithm{}; // likewise: its letters, ended by zeros

    bool operator==(const Spelling &) const = default;
    // False: it is too long for a spelling, or empty, which would look as if there were none.
    bool set_algorithm(const char *text) {
        const size_t length = strnlen(text, sizeof algorithm);
        if (length == 0 || length == sizeof algorithm) return false;
        std::memcpy(algorithm.data(), text, length);
        return true;
    }
};

struct Remembered {
    Spelling spelling;
    ProgramKey key;
    ProgramRef program;
};

class Memo {
public:
    // nullptr where the call has not been made lately.
    const Remembered *find(const Spelling &spelling) const {
        const Remembered &entry = entries_[place(spelling)];
        return entry.spelling == spelling ? &entry : nullptr;
    }
    void remember(const Remembered &call) { entries_[place(call.spelling)] = call; }

private:
    static constexpr unsigned bits = 4; // programs take turns over a few shapes

    static size_t place(const Spelling &spelling) {
        const auto small = static_cast<uint64_t>(static_cast<uint32_t>(spelling.collective));
        const uint64_t codec = reinterpret_cast<uintptr_t>(spelling.codec);
        // 2^64 / golden ratio spreads counts that are multiples of a power of 2, and handles whose
        // numbers differ in the middle.
        return (spelling.count ^ small << 60 ^ codec ^ spelling.algorithm[0]) *
                   0x9E3779B97F4A7C15 >>
               (64 - bits);
    }

    std::array<Remembered, size_t{1} << bits> entries_;
};

} // namespace qccl
