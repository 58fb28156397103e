// Implements codec_bench.hpp: runs each operation many times in a loop on one core and takes
// medians.
#include "perf/codec_bench.hpp"

#include "perf/statistics.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include <time.h>
#include <unistd.h>

namespace qccl {
namespace {

constexpr std::align_val_t page{4096};
struct Free {
    void operator()(std::byte *memory) const { ::operator delete(memory, page); }
};
using Memory = std::unique_ptr<std::byte, Free>;

// Writes every page, so that none is mapped to the shared zero page.
Memory allocate(size_t bytes) {
    Memory memory(static_cast<std::byte *>(::operator new(bytes + 1, page)));
    std::memset(memory.get(), 1, bytes + 1);
    return memory;
}

// Size of the source in bytes. The bounds are there because virtual machines report absurd
// third-level caches.
uint64_t source_bytes(BenchPlace place) {
    const auto cache = [](int name, long otherwise) {
        const long bytes = sysconf(name);
        return static_cast<uint64_t>(bytes > 0 ? bytes : otherwise);
    };
    if (place == BenchPlace::l2) return cache(_SC_LEVEL2_CACHE_SIZE, 512 << 10) / 4;
    return std::clamp<uint64_t>(4 * cache(_SC_LEVEL3_CACHE_SIZE, 32 << 20), 64 << 20, 192 << 20);
}

// The measured operations and the memory they work on.
class Workload {
public:
    Workload(const Codec &codec, DataType type, const Kernels &kernels, BenchPlace place,
             uint64_t bytes, SourceValues values)
        : codec_(codec), kernels_(kernels), type_(type), streams_(place == BenchPlace::stream),
          count_(std::max<size_t>(bytes / type_bytes(type) / grain(codec), 1) * grain(codec)),
          layout_(payload_layout(codec, type, count_)), src_(allocate(count_ * type_bytes(type))),
          dst_(allocate(count_ * type_bytes(accumulator_of(type)))),
          payload_(allocate(layout_.bytes)) {
        range_ = {.codec = &codec_,
                  .layout = &layout_,
                  .type = type,
                  .whole = count_,
                  .begin = 0,
                  .count = count_};
        fill_source(type, kernels, src_.get(), count_, values);
        run(BenchOperation::encode);
    }

    size_t bytes() const { return count_ * type_bytes(type_); }

    void run(BenchOperation operation) {
        switch (operation) {
        case BenchOperation::memcpy: std::memcpy(dst_.get(), src_.get(), bytes()); break;
        case BenchOperation::encode:
            kernels_.encode(range_, {}, type_, src_.get(), payload_.get());
            break;
        case BenchOperation::decode:
            kernels_.decode(range_, payload_.get(), type_, dst_.get(), streams_);
            break;
        case BenchOperation::decode_add:
            kernels_.decode_add(range_, RedOp::sum, payload_.get(), dst_.get());
            break;
        }
        // Keeps the compiler from removing work whose result is not read.
        asm volatile("" : : "r"(dst_.get()), "r"(payload_.get()) : "memory");
    }

private:
    Codec codec_;
    const Kernels &kernels_;
    DataType type_;
    bool streams_;
    size_t count_;
    PayloadLayout layout_;
    Memory src_, dst_, payload_;
    ChunkRange range_;
};

// CPU time of this thread, which other programs on the machine disturb little.
double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(Workload &work, BenchOperation operation, size_t times) {
    const double start = now();
    for (size_t i = 0; i < times; i++) work.run(operation);
    return (now() - start) / static_cast<double>(times);
}

} // namespace

std::array<CodecSpeed, 4> measure_codec(const Codec &codec, DataType type, const Kernels &kernels,
                                        BenchPlace place, const CodecBenchOptions &options) {
    constexpr size_t operations = bench_operation_names.size();
    Workload work(codec, type, kernels, place,
                  options.bytes != 0 ? options.bytes : source_bytes(place), options.values);
    std::array<size_t, operations> times{};
    for (size_t i = 0; i < operations; i++) {
        const auto operation = static_cast<BenchOperation>(i);
        seconds_of(work, operation, 1); // warms up the caches
        times[i] = 1 + static_cast<size_t>(options.seconds /
                                           std::max(seconds_of(work, operation, 1), 1e-9));
    }
    std::array<std::vector<double>, operations> speeds, ratios;
    for (unsigned repetition = 0; repetition < std::max(options.repetitions, 1U); repetition++) {
        std::array<double, operations> seconds{};
        for (size_t i = 0; i < operations; i++)
            seconds[i] = seconds_of(work, static_cast<BenchOperation>(i), times[i]);
        for (size_t i = 0; i < operations; i++) {
            speeds[i].push_back(static_cast<double>(work.bytes()) * 1e-9 / seconds[i]);
            ratios[i].push_back(seconds[0] / seconds[i]);
        }
    }
    std::array<CodecSpeed, operations> rows;
    for (size_t i = 0; i < operations; i++)
        rows[i] = {.operation = static_cast<BenchOperation>(i),
                   .gigabytes_per_second = perf::statistics(speeds[i]).median,
                   .vs_memcpy = perf::statistics(ratios[i]).median};
    return rows;
}

double codec_bench_bytes(const Codec &codec, DataType type, uint64_t source_bytes) {
    // Computed for a few values and scaled up, because the byte count of a source too large for
    // memory might overflow an integer.
    static constexpr size_t few = 1 << 20;
    const double of_few = static_cast<double>(few * type_bytes(type)) +
                          static_cast<double>(few * type_bytes(accumulator_of(type))) +
                          static_cast<double>(payload_layout(codec, type, few).bytes);
    return of_few / few * static_cast<double>(source_bytes / type_bytes(type));
}

} // namespace qccl
