// A wave of an AMD GPU while the CPU executes it: its registers, its masks, where it stands, and
// the steps that code was translated into. Knows no instruction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace amdgpu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using f32 = float;
using f64 = double;
// Bits that are moved, whatever they mean.
using b16 = u16;
using b32 = u32;
using b64 = u64;

inline constexpr unsigned most_lanes = 64;
using Lanes = std::array<u32, most_lanes>;

// v0 to v255, the accumulation registers a0 to a255, and some that the translator keeps values in
// for an instant (operand.py numbers them).
inline constexpr unsigned vector_registers = 516;
// s0 to s105, vcc, trap registers, m0 and exec, numbered as the machine does, and a pair that
// `null` writes to.
inline constexpr unsigned vcc_register = 106, exec_register = 126, scalar_registers = 130;

class Memory;
struct Wave;

// An instruction, or a part of one: a function, and the numbers of registers, constants and steps
// that it works on.
struct Step {
    void (*run)(Wave &, const Step &);
    std::array<u64, 6> o;
    u32 address; // of the instruction, in the code object
    const char *text;
};

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

// What the translator knows of a kernel.
enum class Given : u8 {
    dispatch_packet,
    kernarg_address,
    preloaded,
    group_x,
    group_y,
    group_z,
    nothing
};

// What the first of `registers` scalar registers at `at` are given; `offset` into the arguments
// where they are preloaded.
struct Start {
    Given given;
    unsigned at, registers, offset;
};

enum class Meaning : u8 {
    value,
    block_count_x,
    block_count_y,
    block_count_z,
    group_size_x,
    group_size_y,
    group_size_z,
    remainder,
    grid_dims,
    dynamic_lds_size,
    zero
};

struct Argument {
    Meaning meaning;
    unsigned offset, size;
};

struct Kernel {
    const char *name;
    size_t entry; // index of a step
    unsigned local_bytes, scratch_bytes, argument_bytes, vector_registers;
    std::span<const Start> starts;
    std::span<const Argument> arguments;
};

// Constant data, which the code reaches at a distance from itself.
struct Segment {
    u64 address;
    std::span<const u8> bytes;
};

struct CodeObject {
    const char *target; // "gfx1100"
    unsigned lanes;
    std::span<const Step> steps; // in the order of addresses
    std::span<const Kernel> kernels;
    std::span<const Segment> segments;
    std::span<const char *const> refused; // what the translator does not know, by name
};

} // namespace amdgpu
