// A wave of an AMD GPU while the CPU executes it: its registers, its masks, where it stands. Knows
// no instruction.
#pragma once

#include "translated_code.hpp"

#include <string>

namespace amdgpu {

inline constexpr unsigned most_lanes = 64;
using Lanes = std::array<u32, most_lanes>;

// v0 to v255, the accumulation registers a0 to a255, and some that the translator keeps values in
// for an instant (operand.py numbers them).
inline constexpr unsigned vector_registers = 516;
// s0 to s105, vcc, trap registers, m0 and exec, numbered as the machine does, and a pair that
// `null` writes to.
inline constexpr unsigned vcc_register = 106, exec_register = 126, scalar_registers = 130;

class Memory;

// From which lane a lane takes a value that is shuffled by a fixed pattern.
using Pattern = std::array<i8, most_lanes>;
inline constexpr i8 outside = -1;    // no such lane: zero or left alone, as the instruction says
inline constexpr i8 masked_off = -2; // the instruction leaves this lane's result alone

enum class State : u8 { running, at_barrier, ended, failed };

struct Wave {
    std::array<Lanes, vector_registers> v;
    std::array<u32, scalar_registers> s;
    bool scc = false;
    u64 reached = 0; // the lanes that a pattern gives something to

    State state = State::running;
    size_t next = 0; // index of a step
    std::span<const Step> steps;

    Memory *memory = nullptr;
    std::span<std::byte> local;       // of the group
    std::span<std::byte> own;         // scratch of all lanes, one after the other
    u64 base = 0;                     // what the code object's addresses are counted from
    int error_direction = 1;          // which way approximate instructions err
    std::string *complaint = nullptr; // the first thing that went wrong

    u64 exec() const { return s[exec_register] | u64{s[exec_register + 1]} << 32; }

    // Ends the wave. The interpreter adds what the instruction was.
    void fail(std::string what) {
        state = State::failed;
        if (complaint->empty()) *complaint = std::move(what);
    }
    void jump(u64 address);
};

} // namespace amdgpu
