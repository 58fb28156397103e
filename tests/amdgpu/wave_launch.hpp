// Runs translated kernels: sets up what the hardware and the runtime would, and runs one group
// after another, wave by wave up to each barrier. Tests use it on one thread to check results. It
// shows nothing about speed, the order of memory accesses, or missing waits.
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

    // Runs the kernel with groups and waves in order, restores the memory, and runs it again in the
    // reverse order. Returns "" on success, or a sentence that says what went wrong. It is also an
    // error if the two runs leave different memory.
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
    std::vector<std::byte> image_; // the constants, at the addresses that the code expects
    Memory memory_;
    std::vector<Wave> waves_;
};

} // namespace amdgpu
