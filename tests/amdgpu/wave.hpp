// A wave of an AMD GPU while the CPU executes it: its registers, its masks, and the step that it
// executes next. Translated kernels and their launcher use it, on one thread.
#pragma once

#include "translated_code.hpp"

#include <string>

namespace amdgpu {

inline constexpr unsigned most_lanes = 64;
using Lanes = std::array<u32, most_lanes>;

// Counts v0 to v255, the accumulation registers a0 to a255, and some in which the translator keeps
// values for an instant (operand.py numbers them).
inline constexpr unsigned vector_registers = 516;
// Counts s0 to s105, vcc, trap registers, m0 and exec, numbered as the machine does, and a pair
// that `null` writes to.
inline constexpr unsigned vcc_register = 106, exec_register = 126, scalar_registers = 130;

class Memory;

// By lane: the lane whose value it takes in a shuffle by a fixed pattern.
using Pattern = std::array<i8, most_lanes>;
inline constexpr i8 outside = -1;    // no such lane: zero or left alone, as the instruction says
inline constexpr i8 masked_off = -2; // the instruction leaves this lane's result alone

enum class State : u8 { running, at_barrier, ended, failed };

struct Wave {
    std::array<Lanes, vector_registers> v;
    std::array<u32, scalar_registers> s;
    bool scc = false;
    u64 reached = 0; // the lanes to which a pattern gives a value

    State state = State::running;
    size_t next = 0; // index of the next step
    std::span<const Step> steps;

    Memory *memory = nullptr;
    std::span<std::byte> local;       // of the workgroup
    std::span<std::byte> own;         // scratch of all lanes, one after the other
    u64 base = 0;                     // base of the code object's addresses
    int error_direction = 1;          // the direction in which approximate instructions err
    std::string *complaint = nullptr; // the first error; empty: none

    u64 exec() const { return s[exec_register] | u64{s[exec_register + 1]} << 32; }

    // Ends the wave with an error. The interpreter adds which instruction failed.
    void fail(std::string what) {
        state = State::failed;
        if (complaint->empty()) *complaint = std::move(what);
    }
    void jump(u64 address);
};

} // namespace amdgpu
