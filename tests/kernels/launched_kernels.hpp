// A kernel table for tests in which every operation is a launch on a GPU, given as a template
// argument. Memory that is not aligned as a GPU needs it is copied to aligned memory, as a device
// does.
#pragma once

#include "tests/kit/qtest.hpp"

#include "device/kernel_launcher.hpp"
#include "device/kernels.hpp"

#include <cstring>
#include <vector>

inline void require(const qccl::Done &done) {
    if (!done) throw qtest::Failure{done.error().text};
}

// The GPU has these functions; memory that is lent is accessible to launches until take_back:
//
//     static Done launch(void *, KernelId, unsigned blocks, const Batch &)
//     static void lend(void *memory, size_t bytes, bool is_written)
//     static void take_back(void *memory)
template <class Gpu> class LaunchedKernels {
    // Few blocks, so that each warp takes several turns.
    static constexpr unsigned most_blocks = 2;

    using Noise = qccl::Noise;
    using ChunkRange = qccl::ChunkRange;
    using DataType = qccl::DataType;
    using RedOp = qccl::RedOp;
    using KernelLauncher = qccl::KernelLauncher;

    struct alignas(16) Line {
        std::byte bytes[16];
    };

    // Memory at a multiple of `alignment`: the caller's own, or a copy that the destructor copies
    // back.
    class Lent {
    public:
        Lent(const void *memory, size_t bytes, size_t alignment, bool is_written)
            : memory_(const_cast<void *>(memory)), bytes_(bytes) {
            if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
                copy_.resize(bytes / sizeof(Line) + 1);
                std::memcpy(copy_.data(), memory, bytes);
            }
            Gpu::lend(data(), bytes, is_written);
        }
        ~Lent() {
            Gpu::take_back(data());
            if (!copy_.empty()) std::memcpy(memory_, copy_.data(), bytes_);
        }
        Lent(const Lent &) = delete;
        Lent &operator=(const Lent &) = delete;
        std::byte *data() {
            return copy_.empty() ? static_cast<std::byte *>(memory_) : copy_[0].bytes;
        }

    private:
        void *memory_;
        size_t bytes_;
        std::vector<Line> copy_;
    };

    static Lent read(const void *memory, DataType type, size_t count) {
        return Lent(memory, count * type_bytes(type), type_bytes(type), false);
    }
    static Lent written(void *memory, DataType type, size_t count) {
        return Lent(memory, count * type_bytes(type), type_bytes(type), true);
    }
    static Lent chunk(const ChunkRange &range, const std::byte *payload, bool is_written) {
        return Lent(payload, range.layout->bytes, 16, is_written);
    }
    template <class Add> static void run(Add &&add) {
        KernelLauncher launcher(Gpu::launch, nullptr, qccl::MostBlocks{most_blocks, most_blocks});
        require(add(launcher));
        require(launcher.flush());
    }

    static void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                       std::byte *payload) {
        Lent values = read(src, in, range.count), to = chunk(range, payload, true);
        // The old content of the scratch memory must not matter.
        std::vector<Line> lines(
            KernelLauncher::scratch_bytes(*range.codec, range.type, range.whole) / sizeof(Line),
            Line{std::byte{0xA5}, std::byte{0x5A}, std::byte{0xFF}});
        Lent scratch(lines.data(), lines.size() * sizeof(Line), sizeof(Line), true);
        run([&](KernelLauncher &launcher) {
            launcher.use_scratch({scratch.data(), lines.size() * sizeof(Line)});
            return launcher.encode(range, noise, in, values.data(), to.data());
        });
    }
    static void decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst,
                       bool) {
        Lent values = written(dst, out, range.count), from = chunk(range, payload, false);
        run([&](KernelLauncher &launcher) {
            return launcher.decode(range, from.data(), out, values.data());
        });
    }
    static void decode_add(const ChunkRange &range, RedOp op, const std::byte *payload,
                           void *accumulator) {
        Lent sums = written(accumulator, accumulator_of(range.type), range.count),
             from = chunk(range, payload, false);
        run([&](KernelLauncher &launcher) {
            return launcher.decode_add(range, op, from.data(), sums.data());
        });
    }
    static void reduce(RedOp op, DataType type, void *accumulator, DataType in, const void *src,
                       size_t count) {
        Lent sums = written(accumulator, type, count), values = read(src, in, count);
        run([&](KernelLauncher &launcher) {
            return launcher.reduce(op, type, sums.data(), in, values.data(), count);
        });
    }
    static void copy(DataType out, void *dst, DataType in, const void *src, size_t count, bool) {
        Lent to = written(dst, out, count), from = read(src, in, count);
        run([&](KernelLauncher &launcher) {
            return launcher.copy(out, to.data(), in, from.data(), count);
        });
    }
    static void divide(DataType type, void *accumulator, size_t count, uint32_t ranks) {
        Lent sums = written(accumulator, type, count);
        run([&](KernelLauncher &launcher) {
            return launcher.divide(type, sums.data(), count, ranks);
        });
    }
    static void keep_error(DataType type, void *residual, const void *values, const void *decoded,
                           size_t count, uint32_t factor, void *velocity) {
        Lent kept = written(residual, type, count), given = read(values, type, count),
             got = read(decoded, type, count);
        if (!velocity) {
            run([&](KernelLauncher &launcher) {
                return launcher.keep_error(type, kept.data(), given.data(), got.data(), count,
                                           factor, nullptr);
            });
            return;
        }
        Lent masked = written(velocity, type, count);
        run([&](KernelLauncher &launcher) {
            return launcher.keep_error(type, kept.data(), given.data(), got.data(), count, factor,
                                       masked.data());
        });
    }
    static void add_velocity(DataType type, void *values, void *velocity, const void *before,
                             size_t count, uint32_t momentum) {
        Lent sums = written(values, type, count), next = written(velocity, type, count),
             last = read(before, type, count);
        run([&](KernelLauncher &launcher) {
            return launcher.add_velocity(type, sums.data(), next.data(), last.data(), count,
                                         momentum);
        });
    }

public:
    static constexpr qccl::Kernels kernels{.tier = qccl::Tier::scalar,
                                           .encode = encode,
                                           .decode = decode,
                                           .decode_add = decode_add,
                                           .reduce = reduce,
                                           .copy = copy,
                                           .divide = divide,
                                           .keep_error = keep_error,
                                           .add_velocity = add_velocity,
                                           .pack = nullptr, // processors alone do
                                           .unpack = nullptr};
};
