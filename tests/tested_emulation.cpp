// The GPU's kernels on the emulated GPU, of 32 and of 64 lanes, their threads run forward and
// backward. What does not lie as a GPU wants it is copied to where it does, as a device does.
#include "qtest.hpp"
#include "tested_kernels.hpp"

#include "kernels/emulated_kernels.hpp"
#include "kernels/launches.hpp"

#include <cstring>

using namespace qccl;

namespace {

void require(const Done &done) {
    if (!done) throw qtest::Failure{done.error().text};
}

// Memory at a multiple of `alignment`: the caller's own, or a copy that goes back in the end.
class Aligned {
public:
    Aligned(void *memory, size_t bytes, size_t alignment) : memory_(memory), bytes_(bytes) {
        if (reinterpret_cast<uintptr_t>(memory) % alignment == 0) return;
        copy_.resize(bytes / sizeof(Line) + 1);
        std::memcpy(copy_.data(), memory, bytes);
    }
    ~Aligned() {
        if (!copy_.empty()) std::memcpy(memory_, copy_.data(), bytes_);
    }
    Aligned(const Aligned &) = delete;
    Aligned &operator=(const Aligned &) = delete;
    std::byte *data() { return static_cast<std::byte *>(copy_.empty() ? memory_ : copy_.data()); }

private:
    struct alignas(16) Line {
        std::byte bytes[16];
    };
    void *memory_;
    size_t bytes_;
    std::vector<Line> copy_;
};

// Sources are not written: their copy goes back as it came.
Aligned values_at(const void *memory, DataType type, size_t count) {
    return Aligned(const_cast<void *>(memory), count * type_bytes(type), type_bytes(type));
}
Aligned payload_at(const ChunkRange &range, const std::byte *payload) {
    return Aligned(const_cast<std::byte *>(payload), range.layout->bytes, 16);
}

template <unsigned lanes, emulated::Order order> struct Emulation {
    // Few blocks, so that warps take several turns.
    static constexpr unsigned most_blocks = 2;

    static Done launch(void *, KernelId kernel, unsigned blocks, const Batch &batch) {
        return launch_emulated(lanes, order, kernel, blocks, batch);
    }
    template <class Add> static void run(Add &&add) {
        Launches launches(launch, nullptr, most_blocks);
        require(add(launches));
        require(launches.flush());
    }

    static void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                       std::byte *payload) {
        Aligned values = values_at(src, in, range.count), chunk = payload_at(range, payload);
        run([&](Launches &launches) {
            return launches.encode(range, noise, in, values.data(), chunk.data());
        });
    }
    static void decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst,
                       bool) {
        Aligned values = values_at(dst, out, range.count), chunk = payload_at(range, payload);
        run([&](Launches &launches) {
            return launches.decode(range, chunk.data(), out, values.data());
        });
    }
    static void decode_add(const ChunkRange &range, RedOp op, const std::byte *payload,
                           void *accumulator) {
        Aligned sums = values_at(accumulator, accumulator_of(range.type), range.count),
                chunk = payload_at(range, payload);
        run([&](Launches &launches) {
            return launches.decode_add(range, op, chunk.data(), sums.data());
        });
    }
    static void reduce(RedOp op, DataType type, void *accumulator, DataType in, const void *src,
                       size_t count) {
        Aligned sums = values_at(accumulator, type, count), values = values_at(src, in, count);
        run([&](Launches &launches) {
            return launches.reduce(op, type, sums.data(), in, values.data(), count);
        });
    }
    static void copy(DataType out, void *dst, DataType in, const void *src, size_t count, bool) {
        Aligned to = values_at(dst, out, count), from = values_at(src, in, count);
        run([&](Launches &launches) {
            return launches.copy(out, to.data(), in, from.data(), count);
        });
    }
    static void divide(DataType type, void *accumulator, size_t count, uint32_t ranks) {
        Aligned sums = values_at(accumulator, type, count);
        run([&](Launches &launches) { return launches.divide(type, sums.data(), count, ranks); });
    }

    static constexpr Kernels kernels{.tier = Tier::scalar,
                                     .encode = encode,
                                     .decode = decode,
                                     .decode_add = decode_add,
                                     .reduce = reduce,
                                     .copy = copy,
                                     .divide = divide};
};

using emulated::Order;

} // namespace

const std::vector<TestedKernels> &tested_kernels() {
    static const std::vector<TestedKernels> tested = {
        {"32 lanes", &Emulation<32, Order::forward>::kernels, Launches::knows},
        {"64 lanes", &Emulation<64, Order::forward>::kernels, Launches::knows},
        {"32 lanes backward", &Emulation<32, Order::reverse>::kernels, Launches::knows},
        {"64 lanes backward", &Emulation<64, Order::reverse>::kernels, Launches::knows}};
    return tested;
}
