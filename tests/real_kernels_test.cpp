// Tests the kernels of the GPU that the argument or QTEST_DEVICE names against the CPU's, byte for
// byte: every codec and type, over many kinds of values. QTEST_VALUES sets the total number of
// values; a chunk has up to four million. Host threads share the values, each with its own stream.
// A first test checks that a kernel's first launch and private memory do not wait for another
// stream that is blocked in a stream wait.
#include "golden_cases.hpp"
#include "real_gpu_kit.hpp"
#include "thinning.hpp"

#include "kernels/kernel_launcher.hpp"

#include <atomic>
#include <mutex>
#include <thread>

using namespace real_gpu;

namespace {

constexpr uint64_t most_in_a_chunk = uint64_t{4} << 20;
constexpr uint64_t slow_reference_up_to = 100'000; // values; beyond, the CPU's best tier

// One comparison: a codec on a type, or without a codec the operations on plain values.
struct Task {
    std::optional<Codec> codec;
    DataType type;
};

uint64_t values_asked_for() {
    const char *const text = std::getenv("QTEST_VALUES");
    return text ? std::strtoull(text, nullptr, 10) : uint64_t{200'000};
}

std::vector<Task> all_tasks() {
    std::vector<Task> tasks;
    for (const TypeInfo &type : type_table) tasks.push_back({std::nullopt, type.type});
    size_t number = 0;
    for (const std::string &spec : golden::specs())
        for (const DataType type : golden::float_types) {
            const auto codec = parse_codec(spec);
            CHECK_OK(codec);
            const bool is_possible =
                !!check_codec(*codec, Collective::all_reduce, type, RedOp::sum);
            if (is_possible && is_chosen(number++)) tasks.push_back({*codec, type});
        }
    return tasks;
}

// The stream of one host thread, and values that never repeat.
class Bench {
public:
    explicit Bench(uint64_t seed) : seed_(splitmix64(seed)) {}

    void run(const Task &task, uint64_t values) {
        for (uint64_t done = 0; done < values;) {
            // Chunks have odd lengths, and take the kinds of values in turn.
            const uint64_t most = std::min(values - done, most_in_a_chunk);
            const uint64_t count = most - (most > 4000 ? draw() % 2000 : 0);
            kind_ = golden::kinds[turn_++ % std::size(golden::kinds)];
            if (task.codec)
                compare_chunk(*task.codec, task.type, count);
            else
                compare_plain(task.type, count);
            done += std::max<uint64_t>(count, 1);
        }
    }

private:
    using Bytes = std::vector<std::byte>;

    uint64_t draw() { return splitmix64(seed_ + drawn_++); }
    Bytes values(DataType type, uint64_t count) {
        const size_t bytes = type_bytes(type);
        Bytes made(count * bytes);
        const bool is_float = info(type).is_float;
        const golden::Fields fields = golden::fields_of(type);
        for (uint64_t i = 0; i < count; i++) {
            const uint64_t pattern =
                is_float ? golden::pattern_of(fields, kind_, draw(), i) : draw();
            std::memcpy(made.data() + i * bytes, &pattern, bytes);
        }
        return made;
    }
    static Done launch(void *self, KernelId kernel, unsigned blocks, const Batch &batch) {
        return tested->launch(static_cast<Bench *>(self)->stream_.get(), kernel, blocks, batch);
    }
    // Runs the launches that `add` adds, and waits for them.
    template <class Add> void on_gpu(Add &&add) {
        KernelLauncher launcher(launch, this, 4 * tested->traits().multiprocessors);
        launcher.use_scratch(scratch_);
        CHECK_OK(add(launcher));
        CHECK_OK(launcher.flush());
        stream_.wait();
    }
    static const Kernels &reference(uint64_t count) {
        return count <= slow_reference_up_to ? scalar_kernels() : best_kernels();
    }
    [[noreturn]] void differs(const char *what, const std::string &codec, DataType type,
                              uint64_t count) const {
        throw qtest::Failure{std::string(what) + " " + codec + " of " + std::to_string(count) +
                             " " + name(type) + ", kind " +
                             std::to_string(static_cast<int>(kind_)) + ": not the CPU's bytes"};
    }
    void compare_chunk(const Codec &codec, DataType type, uint64_t count);
    void compare_sums(const ChunkRange &range, const GuardedMemory &payload, const Bytes &wanted);
    void compare_hop(const ChunkRange &range, const GuardedMemory &payload, const Bytes &received,
                     const Noise &noise);
    void compare_plain(DataType type, uint64_t count);

    const uint64_t seed_;
    uint64_t drawn_ = 0, turn_ = 0;
    golden::Kind kind_ = golden::Kind::spread;
    const Stream stream_;
    std::span<std::byte> scratch_;
};

void Bench::compare_chunk(const Codec &codec, DataType type, uint64_t count) {
    const PayloadLayout layout = payload_layout(codec, type, count);
    const ChunkRange range{.codec = &codec,
                           .layout = &layout,
                           .type = type,
                           .whole = count,
                           .begin = 0,
                           .count = count};
    const Noise noise{.key = draw(), .call = draw(), .first_index = draw() >> 20};
    const Kernels &cpu = reference(count);
    const Bytes input = values(type, count);
    Bytes wanted(layout.bytes), decoded(input.size());
    cpu.encode(range, noise, type, input.data(), wanted.data());
    cpu.decode(range, wanted.data(), type, decoded.data(), false);

    GuardedMemory source(stream_, input.size()), payload(stream_, layout.bytes),
        target(stream_, input.size()),
        scratch(stream_, KernelLauncher::scratch_bytes(codec, type, count));
    scratch_ = {scratch.data(), KernelLauncher::scratch_bytes(codec, type, count)};
    source.write(input.data(), input.size());
    on_gpu([&](KernelLauncher &launcher) {
        return launcher.encode(range, noise, type, source.data(), payload.data());
    });
    if (!payload.holds(wanted.data(), wanted.size())) differs("encode", spec(codec), type, count);
    on_gpu([&](KernelLauncher &launcher) {
        return launcher.decode(range, payload.data(), type, target.data());
    });
    if (!target.holds(decoded.data(), decoded.size())) differs("decode", spec(codec), type, count);
    compare_sums(range, payload, wanted);
    if (KernelLauncher::can_fuse(codec, type)) compare_hop(range, payload, wanted, noise);
    scratch_ = {};
}

void Bench::compare_sums(const ChunkRange &range, const GuardedMemory &payload,
                         const Bytes &wanted) {
    const DataType accumulator = accumulator_of(range.type);
    for (const RedOp op : {RedOp::sum, RedOp::max}) {
        if (!check_codec(*range.codec, Collective::all_reduce, range.type, op)) continue;
        Bytes sums = values(accumulator, range.count);
        GuardedMemory on_device(stream_, sums.size());
        on_device.write(sums.data(), sums.size());
        reference(range.count).decode_add(range, op, wanted.data(), sums.data());
        on_gpu([&](KernelLauncher &launcher) {
            return launcher.decode_add(range, op, payload.data(), on_device.data());
        });
        if (!on_device.holds(sums.data(), sums.size()))
            differs("decode_add", spec(*range.codec), range.type, range.count);
    }
}

// Compares the single launch of a ring's hop with the hop's separate steps.
void Bench::compare_hop(const ChunkRange &range, const GuardedMemory &payload,
                        const Bytes &received, const Noise &noise) {
    const DataType accumulator = accumulator_of(range.type);
    const Bytes own = values(range.type, range.count);
    Bytes sums(range.count * type_bytes(accumulator)), wanted(range.layout->bytes);
    constexpr uint32_t divisor = 3;
    const Kernels &cpu = reference(range.count);
    cpu.decode(range, received.data(), accumulator, sums.data(), false);
    cpu.reduce(RedOp::avg, accumulator, sums.data(), range.type, own.data(), range.count);
    cpu.divide(accumulator, sums.data(), range.count, divisor);
    cpu.encode(range, noise, accumulator, sums.data(), wanted.data());

    GuardedMemory addends(stream_, own.size()), result(stream_, wanted.size());
    addends.write(own.data(), own.size());
    on_gpu([&](KernelLauncher &launcher) {
        return launcher.decode_add_encode(range, RedOp::avg, divisor, payload.data(), range.type,
                                          addends.data(), noise, result.data());
    });
    if (!result.holds(wanted.data(), wanted.size()))
        differs("decode_add_encode", spec(*range.codec), range.type, range.count);
}

void Bench::compare_plain(DataType type, uint64_t count) {
    const DataType accumulator = accumulator_of(type);
    const Kernels &cpu = reference(count);
    const Bytes terms = values(type, count);
    const size_t bytes = count * type_bytes(accumulator);
    GuardedMemory source(stream_, terms.size()), sums(stream_, bytes),
        narrow(stream_, terms.size());
    source.write(terms.data(), terms.size());
    for (const RedOp op : {RedOp::sum, RedOp::prod, RedOp::max, RedOp::min, RedOp::avg}) {
        Bytes wanted = values(accumulator, count), narrowed(terms.size());
        sums.write(wanted.data(), bytes);
        cpu.reduce(op, accumulator, wanted.data(), type, terms.data(), count);
        cpu.divide(accumulator, wanted.data(), count, 7);
        cpu.copy(type, narrowed.data(), accumulator, wanted.data(), count, false);
        on_gpu([&](KernelLauncher &launcher) -> Done {
            QCCL_TRY(launcher.reduce(op, accumulator, sums.data(), type, source.data(), count));
            QCCL_TRY(launcher.flush());
            QCCL_TRY(launcher.divide(accumulator, sums.data(), count, 7));
            QCCL_TRY(launcher.flush());
            return launcher.copy(type, narrow.data(), accumulator, sums.data(), count);
        });
        if (!sums.holds(wanted.data(), bytes)) differs("reduce", name(op), type, count);
        if (!narrow.holds(narrowed.data(), narrowed.size()))
            differs("copy after", name(op), type, count);
    }
}

// This test runs first because a wait would occur at a kernel's first launch. A failure of this
// test shows as a hang.
void nothing_waits_for_a_blocked_stream() {
    if (!tested->traits().has_stream_waits) return;
    const auto gate = tested->create_stream_wait();
    const auto mark = tested->create_mark();
    CHECK(gate && mark);
    {
        const Stream waiting, stream;
        CHECK_OK(tested->await_stream_wait(waiting.get(), *gate, 1));
        CHECK_OK(tested->set_mark(*mark, waiting.get()));
        for (const size_t bytes : {size_t{1} << 10, size_t{64} << 20, size_t{1} << 20}) {
            const std::vector<std::byte> values(bytes, std::byte{3});
            GuardedMemory memory(stream, bytes);
            memory.write(values.data(), bytes);
            CHECK(memory.holds(values.data(), bytes));
        }
        // Launches the kernels that accept any number of tensors, with none.
        for (size_t id = 0; id < static_cast<size_t>(KernelId::clear_sums); id++) {
            CHECK_OK(tested->launch(stream.get(), static_cast<KernelId>(id), 1, Batch{}));
            stream.wait();
        }
        const auto has_passed = tested->has_passed(*mark);
        CHECK_OK(has_passed);
        CHECK(!*has_passed);
        std::atomic_ref(**gate).store(1);
        waiting.wait();
    }
    tested->destroy_mark(*mark);
    tested->destroy_stream_wait(*gate);
}

void bytes_are_those_of_the_cpu() {
    const std::vector<Task> tasks = all_tasks();
    const uint64_t each = std::max<uint64_t>(values_asked_for() / tasks.size(), 1);
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    std::string said;
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1U, 16U); i++)
        threads.emplace_back([&, i] {
            try {
                Bench bench(i);
                for (size_t task = next++; task < tasks.size(); task = next++)
                    bench.run(tasks[task], each);
            } catch (const qtest::Failure &failure) {
                const std::lock_guard lock(mutex);
                if (said.empty()) said = failure.text;
                next = tasks.size();
            }
        });
    threads.clear();
    if (!said.empty()) throw qtest::Failure{said};
    std::printf("%zu pairs of codec and type, %llu values of each\n", tasks.size(),
                static_cast<unsigned long long>(each));
}

} // namespace

int main(int argc, char **argv) {
    if (!open_tested(argc, argv)) return skipped;
    const CMUnitTest tests[] = {QTEST(nothing_waits_for_a_blocked_stream),
                                QTEST(bytes_are_those_of_the_cpu)};
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    tested.reset();
    return failed;
}
