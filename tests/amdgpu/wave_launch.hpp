// Launches of translated kernels: what the hardware and the runtime set up for them, group after
// group, wave after wave up to each barrier. Shows whether results are right; says nothing about
// speed, the order of memory, or waits that are missing.
#pragma once

#include "guarded_memory.hpp"
#include "wave.hpp"

#include <string>
#include <vector>

namespace amdgpu {

struct Grid {
    unsigned x = 1, y = 1, z = 1;
    unsigned volume() const { return x * y * z; }
};

struct Shape {
    Grid groups;
    Grid threads; // of a group
    unsigned dynamic_local_bytes = 0;
};

enum class Order : u8 { forward, backward };

class Gpu {
public:
    explicit Gpu(const CodeObject &code);

    Memory &memory() { return memory_; }
    const CodeObject &code() const { return code_; }

    // Runs the kernel with the groups and the waves between barriers in order, and again from the
    // same memory in the reverse order. Returns what went wrong, "" where nothing did: among it
    // that the two differ in what they leave in memory.
    template <class... Args>
    std::string launch(const char *kernel, const Shape &shape, const Args &...args) {
        return launch_with(kernel, shape,
                           {std::span(reinterpret_cast<const std::byte *>(&args), sizeof args)...});
    }

    using Arguments = std::vector<std::span<const std::byte>>;
    std::string launch_with(const char *kernel, const Shape &shape, const Arguments &arguments);

private:
    std::string run(const Kernel &kernel, const Shape &shape, std::span<const std::byte> arguments,
                    Order order);

    const CodeObject &code_;
    std::vector<std::byte> image_; // the code object's constants, where the code expects them
    Memory memory_;
    std::vector<Wave> waves_;
};

} // namespace amdgpu
