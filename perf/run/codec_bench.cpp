// Implements codec_bench.hpp: runs each operation many times in a loop on one core, or in a stream
// of a GPU, and takes medians. The values come from a table of fixed seed.
#include "perf/run/codec_bench.hpp"

#include "device/device.hpp"
#include "device/kernel_launcher.hpp"
#include "device/packed_chunk.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/report/measurement.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include <time.h>
#include <unistd.h>

namespace qccl {

// ---- Values

void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count,
                 SourceValues values) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> even(-1, 1);
    std::vector<float> table(65521); // a prime, so that blocks differ
    for (float &x : table) x = values == SourceValues::normal ? normal(random) : even(random);
    for (size_t i = 0; i < count; i += table.size())
        kernels.copy(type, dst + i * type_bytes(type), DataType::float32, table.data(),
                     std::min(table.size(), count - i), false);
}

// ---- One core

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
          payload_(allocate(layout_.bytes)), packed_(allocate(codec.packs ? layout_.bytes : 0)),
          scratch_(codec.packs ? std::make_unique<PackScratch>() : nullptr) {
        range_ = whole_chunk(codec_, layout_, type, count_);
        fill_source(type, kernels, src_.get(), count_, values);
        run(BenchOperation::encode);
    }

    size_t bytes() const { return count_ * type_bytes(type_); }

    void run(BenchOperation operation) {
        switch (operation) {
        case BenchOperation::memcpy: std::memcpy(dst_.get(), src_.get(), bytes()); break;
        case BenchOperation::encode:
            kernels_.encode(range_, {}, type_, src_.get(), payload_.get());
            pack();
            break;
        case BenchOperation::decode:
            unpack();
            kernels_.decode(range_, payload_.get(), type_, dst_.get(), streams_);
            break;
        case BenchOperation::decode_add:
            unpack();
            kernels_.decode_add(range_, RedOp::sum, payload_.get(), dst_.get());
            break;
        }
        // Keeps the compiler from removing work whose result is not read.
        asm volatile("" : : "r"(dst_.get()), "r"(payload_.get()) : "memory");
    }

private:
    void pack() {
        if (codec_.packs)
            packed_bytes_ = pack_payload(kernels_, codec_, type_, count_, payload_.get(),
                                         packed_.get(), *scratch_);
    }
    void unpack() {
        if (!codec_.packs) return;
        const Done done = unpack_payload(kernels_, codec_, type_, count_,
                                         {packed_.get(), packed_bytes_}, payload_.get(), *scratch_);
        if (!done) std::abort(); // a kernel does not read what it has written
    }

    Codec codec_;
    const Kernels &kernels_;
    DataType type_;
    bool streams_;
    size_t count_;
    PayloadLayout layout_;
    Memory src_, dst_, payload_, packed_;
    std::unique_ptr<PackScratch> scratch_;
    size_t packed_bytes_ = 0;
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
    const double of_few =
        static_cast<double>(few * type_bytes(type)) +
        static_cast<double>(few * type_bytes(accumulator_of(type))) +
        static_cast<double>(payload_layout(codec, type, few).bytes) * (codec.packs ? 2 : 1);
    const size_t values = source_bytes / type_bytes(type);
    return of_few / few * static_cast<double>(values);
}

// ---- A GPU

namespace {

// The measured operations and the GPU memory they work on.
class GpuWorkload {
public:
    static Result<std::unique_ptr<GpuWorkload>>
    create(const Codec &codec, DataType type, const std::shared_ptr<Gpu> &gpu, uint64_t bytes);

    bool has(GpuOperation operation) const {
        return operation != GpuOperation::decode_add_encode ||
               KernelLauncher::can_fuse(codec_, type_);
    }
    double bytes_moved(GpuOperation operation) const;
    Done run(GpuOperation operation);
    // Runs the operation `times` times in a row. Returns the seconds for one of them.
    Result<double> time(GpuOperation operation, size_t times);

private:
    GpuWorkload(const Codec &codec, DataType type, std::shared_ptr<Gpu> gpu, size_t count)
        : codec_(codec), type_(type), gpu_(std::move(gpu)), count_(count),
          layout_(payload_layout(codec, type, count)),
          launcher_(launch, this, MostBlocks::of_gpu(gpu_->traits().multiprocessors)),
          range_(whole_chunk(codec_, layout_, type, count)) {}
    static Done launch(void *self, KernelId kernel, unsigned blocks, const Batch &batch) {
        const auto &own = *static_cast<const GpuWorkload *>(self);
        return own.gpu_->launch(own.stream_.get(), kernel, blocks, batch);
    }
    Done allocate();
    Done fill();
    size_t value_bytes() const { return count_ * type_bytes(type_); }
    size_t sum_bytes() const { return count_ * type_bytes(accumulator_of(type_)); }

    const Codec codec_;
    const DataType type_;
    const std::shared_ptr<Gpu> gpu_;
    const size_t count_;
    const PayloadLayout layout_;
    OwnStream stream_;
    DeviceMemory values_, sums_, payload_, second_payload_, scratch_;
    KernelLauncher launcher_;
    const ChunkRange range_;
};

Done GpuWorkload::allocate() {
    const Device device = gpu_device(host_device(best_kernels()), gpu_);
    QCCL_TRY(stream_, OwnStream::create(gpu_, StreamPriority::usual));
    const auto make = [&](DeviceMemory &memory, size_t bytes) -> Done {
        QCCL_TRY(memory, DeviceMemory::create(device, bytes + 16));
        return {};
    };
    QCCL_TRY(make(values_, value_bytes()));
    QCCL_TRY(make(sums_, sum_bytes()));
    QCCL_TRY(make(payload_, layout_.bytes));
    QCCL_TRY(make(second_payload_, layout_.bytes));
    const size_t scratch_bytes = KernelLauncher::scratch_bytes(codec_, type_, count_);
    QCCL_TRY(make(scratch_, scratch_bytes));
    launcher_.use_scratch({scratch_.data(), scratch_bytes});
    return {};
}

Done GpuWorkload::fill() {
    QCCL_TRY(const DeviceMemory host,
             DeviceMemory::create(host_device(best_kernels()), value_bytes()));
    fill_source(type_, best_kernels(), host.data(), count_);
    QCCL_TRY(gpu_->copy(stream_.get(), values_.data(), host.data(), value_bytes()));
    QCCL_TRY(run(GpuOperation::encode));
    return gpu_->synchronize(stream_.get());
}

Result<std::unique_ptr<GpuWorkload>> GpuWorkload::create(const Codec &codec, DataType type,
                                                         const std::shared_ptr<Gpu> &gpu,
                                                         uint64_t bytes) {
    const size_t count =
        std::max<size_t>(bytes / type_bytes(type) / grain(codec), 1) * grain(codec);
    std::unique_ptr<GpuWorkload> work(new GpuWorkload(codec, type, gpu, count));
    QCCL_TRY(work->allocate());
    QCCL_TRY(work->fill());
    return Result<std::unique_ptr<GpuWorkload>>(std::move(work));
}

double GpuWorkload::bytes_moved(GpuOperation operation) const {
    const auto values = static_cast<double>(value_bytes()), sums = static_cast<double>(sum_bytes()),
               payload = static_cast<double>(layout_.bytes);
    switch (operation) {
    case GpuOperation::copy: return 2 * values;
    case GpuOperation::encode:
    case GpuOperation::decode: return values + payload;
    case GpuOperation::decode_add: return 2 * sums + payload;
    case GpuOperation::decode_add_encode: return values + 2 * payload;
    }
    return 0;
}

Done GpuWorkload::run(GpuOperation operation) {
    switch (operation) {
    case GpuOperation::copy:
        return gpu_->copy(stream_.get(), sums_.data(), values_.data(), value_bytes());
    case GpuOperation::encode:
        QCCL_TRY(launcher_.encode(range_, {}, type_, values_.data(), payload_.data()));
        break;
    case GpuOperation::decode:
        QCCL_TRY(launcher_.decode(range_, payload_.data(), type_, sums_.data()));
        break;
    case GpuOperation::decode_add:
        QCCL_TRY(launcher_.decode_add(range_, RedOp::sum, payload_.data(), sums_.data()));
        break;
    case GpuOperation::decode_add_encode:
        QCCL_TRY(launcher_.decode_add_encode(range_, RedOp::sum, 1, payload_.data(), type_,
                                             values_.data(), {}, second_payload_.data()));
        break;
    }
    return launcher_.flush();
}

Result<double> GpuWorkload::time(GpuOperation operation, size_t times) {
    using Clock = std::chrono::steady_clock;
    QCCL_TRY(gpu_->synchronize(stream_.get()));
    const auto start = Clock::now();
    for (size_t i = 0; i < times; i++) QCCL_TRY(run(operation));
    QCCL_TRY(gpu_->synchronize(stream_.get()));
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(times);
}

// The CPU plays it: nobody compares its speeds, so operations are run once.
bool is_emulated(const GpuTraits &traits) { return traits.name.starts_with("emulated"); }

} // namespace

uint64_t default_gpu_bytes(const GpuTraits &traits) {
    return is_emulated(traits) ? uint64_t{64} << 10 : uint64_t{256} << 20;
}

Result<std::vector<GpuCodecSpeed>> measure_gpu_codec(const Codec &codec, DataType type,
                                                     const std::shared_ptr<Gpu> &gpu,
                                                     const GpuCodecOptions &options) {
    const uint64_t bytes = options.bytes != 0 ? options.bytes : default_gpu_bytes(gpu->traits());
    QCCL_TRY(const auto work, GpuWorkload::create(codec, type, gpu, bytes));
    const double least_seconds = is_emulated(gpu->traits()) ? 0 : options.seconds;
    std::vector<GpuOperation> operations;
    std::vector<size_t> times;
    for (size_t i = 0; i < gpu_operation_names.size(); i++) {
        const auto operation = static_cast<GpuOperation>(i);
        if (!work->has(operation)) continue;
        QCCL_TRY(const double first, work->time(operation, 1)); // also loads the kernel
        QCCL_TRY(const double second, work->time(operation, 1));
        operations.push_back(operation);
        times.push_back(
            1 + static_cast<size_t>(least_seconds / std::max(std::min(first, second), 1e-7)));
    }
    std::vector<std::vector<double>> seconds(operations.size()), ratios(operations.size());
    for (unsigned repetition = 0; repetition < std::max(options.repetitions, 1U); repetition++) {
        double copy_rate = 0;
        for (size_t i = 0; i < operations.size(); i++) {
            QCCL_TRY(const double each, work->time(operations[i], times[i]));
            const double rate = work->bytes_moved(operations[i]) / each;
            if (operations[i] == GpuOperation::copy) copy_rate = rate;
            seconds[i].push_back(each);
            ratios[i].push_back(rate / copy_rate);
        }
    }
    std::vector<GpuCodecSpeed> rows;
    for (size_t i = 0; i < operations.size(); i++) {
        const double median = perf::statistics(seconds[i]).median;
        rows.push_back({.operation = operations[i],
                        .gigabytes_per_second = work->bytes_moved(operations[i]) * 1e-9 / median,
                        .vs_copy = perf::statistics(ratios[i]).median,
                        .us = median * 1e6});
    }
    return rows;
}

double gpu_codec_host_bytes(const Codec &codec, DataType type, uint64_t bytes, bool is_emulated) {
    if (!is_emulated) return static_cast<double>(bytes);
    // Computed for a few values and scaled up, because the byte count of a source too large for
    // memory might overflow an integer.
    static constexpr size_t few = 1 << 20;
    const double of_few = 2 * static_cast<double>(few * type_bytes(type)) +
                          static_cast<double>(few * type_bytes(accumulator_of(type))) +
                          2 * static_cast<double>(payload_layout(codec, type, few).bytes) +
                          static_cast<double>(KernelLauncher::scratch_bytes(codec, type, few));
    const size_t values = bytes / type_bytes(type);
    return of_few / few * static_cast<double>(values);
}

} // namespace qccl
