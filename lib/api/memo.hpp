// The calls that a communicator made lately, as the caller spelled them: a repeated call finds its
// program with one comparison. Used under the gate.
#pragma once

#include "api/programs.hpp"

#include <array>
#include <cstdint>

namespace qccl {

// What a call without a config says, buffers aside. Numbers as C gives them, unchecked.
struct Spelling {
    int32_t collective = -1;
    int32_t type = 0, op = 0, root = 0;
    uint64_t count = 0;

    bool operator==(const Spelling &) const = default;
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
        // 2^64 / golden ratio spreads counts that are multiples of a power of 2.
        return (spelling.count ^ small << 60) * 0x9E3779B97F4A7C15 >> (64 - bits);
    }

    std::array<Remembered, size_t{1} << bits> entries_;
};

} // namespace qccl
