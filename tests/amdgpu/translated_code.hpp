// The translator's output for a code object: steps, kernels and constants. wave_launch runs it.
// Plain data.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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
// Untyped bits, for moves.
using b16 = u16;
using b32 = u32;
using b64 = u64;

struct Wave;

// An instruction or a part of one: a function, and the numbers of the registers, constants and
// steps that it works on.
struct Step {
    void (*run)(Wave &, const Step &);
    std::array<u64, 6> o;
    u32 address; // of the instruction, in the code object
    const char *text;
};

// The values that the hardware puts into registers before the first instruction.
enum class Given : u8 {
    dispatch_packet,
    kernarg_address,
    preloaded,
    group_x,
    group_y,
    group_z,
    nothing
};

// One such value, in `registers` scalar registers from `at` on. `offset`: into the arguments, for a
// preloaded value.
struct Start {
    Given given;
    unsigned at, registers, offset;
};

// What an argument holds: a value of the caller, or a property of the launch that the runtime adds.
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

// Constant data; the code reaches it at a fixed distance from itself.
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
    std::span<const char *const> refused; // unsupported instructions, by name
};

} // namespace amdgpu
