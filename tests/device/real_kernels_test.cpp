// Tests the kernels of the GPU that the argument or QTEST_DEVICE names against the CPU's, byte for
// byte: every codec and type, over many kinds of values. QTEST_VALUES sets the total number of
// values; a chunk has up to four million. Host threads share the values, each with its own stream.
// Other tests check that a kernel's first launch, private memory and all else that calls need do
// not wait for another stream that is blocked in a stream wait. QTEST_SANITIZER=1 leaves them out:
// NVIDIA's sanitizer has each launch wait for all others.
#include "tests/kernels/golden_cases.hpp"
#include "real_gpu_kit.hpp"
#include "tests/kit/sample.hpp"

#include "device/kernel_launcher.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <atomic>
#include <chrono>
#include <functional>
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
        // Chunks have odd lengths and take the kinds of values in turn, each of them once at least.
        const uint64_t longest =
            std::clamp<uint64_t>(values / std::size(golden::kinds), 1, most_in_a_chunk);
        for (uint64_t done = 0; done < values;) {
            const uint64_t most = std::min(values - done, longest);
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
            const std::array words =
                is_float ? std::array{golden::pattern_of(fields, kind_, draw(), i), uint64_t{0}}
                         : golden::words_of(info(type), kind_, draw(), i);
            std::memcpy(made.data() + i * bytes, words.data(), bytes);
        }
        return made;
    }
    static Done launch(void *self, KernelId kernel, unsigned blocks, const Batch &batch) {
        return tested->launch(static_cast<Bench *>(self)->stream_.get(), kernel, blocks, batch);
    }
    // Runs the launches that `add` adds, and waits for them.
    template <class Add> void on_gpu(Add &&add) {
        KernelLauncher launcher(launch, this, MostBlocks::of_gpu(tested->traits().multiprocessors));
        launcher.use_scratch(scratch_);
        CHECK_OK(add(launcher));
        CHECK_OK(launcher.flush());
        stream_.wait();
    }
    static const Kernels &reference(uint64_t count) {
        return count <= slow_reference_up_to ? scalar_kernels() : best_kernels();
    }
    // Fails if the GPU's memory does not hold these bytes.
    void expect(GuardedMemory &memory, const Bytes &wanted, const char *what,
                const std::string &codec, DataType type, uint64_t count) const {
        const auto *const got = memory.read(wanted.size());
        const auto first = std::mismatch(wanted.begin(), wanted.end(), got);
        if (first.first == wanted.end()) return;
        size_t wrong = 0;
        for (size_t i = 0; i < wanted.size(); i++) wrong += wanted[i] != got[i] ? 1 : 0;
        char where[96];
        std::snprintf(where, sizeof where,
                      ": byte %zu is %02x, not the CPU's %02x; %zu of %zu differ",
                      static_cast<size_t>(first.first - wanted.begin()),
                      std::to_integer<unsigned>(*first.second),
                      std::to_integer<unsigned>(*first.first), wrong, wanted.size());
        throw qtest::Failure{std::string(what) + " " + codec + " of " + std::to_string(count) +
                             " " + name(type) + ", kind " +
                             std::to_string(static_cast<int>(kind_)) + where};
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
    expect(payload, wanted, "encode", spec(codec), type, count);
    on_gpu([&](KernelLauncher &launcher) {
        return launcher.decode(range, payload.data(), type, target.data());
    });
    expect(target, decoded, "decode", spec(codec), type, count);
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
        expect(on_device, sums, "decode_add", spec(*range.codec), range.type, range.count);
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
    expect(result, wanted, "decode_add_encode", spec(*range.codec), range.type, range.count);
}

void Bench::compare_plain(DataType type, uint64_t count) {
    const DataType accumulator = accumulator_of(type);
    const Kernels &cpu = reference(count);
    const Bytes terms = values(type, count);
    const size_t bytes = count * type_bytes(accumulator);
    GuardedMemory source(stream_, terms.size()), sums(stream_, bytes),
        narrow(stream_, terms.size());
    source.write(terms.data(), terms.size());
    for (const RedOp op : all_ops) {
        if (!takes(type, op)) continue;
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
        expect(sums, wanted, "reduce", name(op), type, count);
        expect(narrow, narrowed, "copy after", name(op), type, count);
    }
}

// A stream that a word of the host blocks, again and again.
class BlockedStream {
public:
    BlockedStream() {
        const auto word = tested->create_stream_wait();
        CHECK_OK(word);
        word_ = *word;
    }
    ~BlockedStream() { tested->destroy_stream_wait(word_); }
    BlockedStream(const BlockedStream &) = delete;
    GpuStream get() const { return stream_.get(); }
    void block() { CHECK_OK(tested->await_stream_wait(stream_.get(), word_, ++value_)); }
    void go_on() {
        std::atomic_ref(*word_).store(value_);
        stream_.wait();
    }

private:
    const Stream stream_;
    uint32_t *word_ = nullptr;
    uint32_t value_ = 0;
};

// This test runs first because a wait would occur at a kernel's first launch. A failure of this
// test shows as a hang.
void nothing_waits_for_a_blocked_stream() {
    if (!tested->traits().has_stream_waits) return;
    const auto mark = tested->create_event();
    CHECK_OK(mark);
    {
        BlockedStream waiting;
        const Stream stream;
        waiting.block();
        CHECK_OK(tested->record_event(*mark, waiting.get()));
        for (const size_t bytes : {size_t{1} << 10, size_t{64} << 20, size_t{1} << 20}) {
            const std::vector<std::byte> values(bytes, std::byte{3});
            GuardedMemory memory(stream, bytes);
            memory.write(values.data(), bytes);
            CHECK(memory.holds(values.data(), bytes));
        }
        // Calls the kernels that accept any number of tensors, with none.
        for (size_t id = 0; id < static_cast<size_t>(KernelId::clear_sums); id++) {
            CHECK_OK(tested->launch(stream.get(), static_cast<KernelId>(id), 1, Batch{}));
            stream.wait();
        }
        const auto has_passed = tested->has_passed(*mark);
        CHECK_OK(has_passed);
        CHECK(!*has_passed);
        waiting.go_on();
    }
    tested->destroy_event(*mark);
}

// Runs `operation` while streams are blocked. Returns whether it has ended without them within
// `patience`.
bool ends_beside(const std::vector<std::unique_ptr<BlockedStream>> &blocked_streams,
                 const std::function<void()> &operation,
                 std::chrono::milliseconds patience = std::chrono::milliseconds(300)) {
    for (const auto &blocked : blocked_streams) blocked->block();
    std::atomic<bool> has_ended = false;
    std::thread thread([&] {
        operation();
        has_ended = true;
    });
    for (const auto start = std::chrono::steady_clock::now();
         !has_ended && std::chrono::steady_clock::now() - start < patience;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const bool is_free = has_ended;
    for (const auto &blocked : blocked_streams) blocked->go_on();
    thread.join();
    return is_free;
}

// Creates streams of either priority beside one that is blocked, and launches a kernel in each.
// Prints how many are created, and how many kernels run, before one waits: a GPU has a limited
// number of queues for the streams of a process (CUDA_DEVICE_MAX_CONNECTIONS).
void streams_have_queues() {
    if (!tested->traits().has_stream_waits) return;
    for (const StreamPriority priority : {StreamPriority::usual, StreamPriority::greatest}) {
        std::vector<std::unique_ptr<BlockedStream>> blocked_streams;
        blocked_streams.push_back(std::make_unique<BlockedStream>());
        std::vector<GpuStream> streams;
        constexpr size_t most = 48;
        size_t waited = 0;
        while (streams.size() < most) {
            const bool is_free = ends_beside(blocked_streams, [&] {
                const auto made = tested->create_stream(priority);
                CHECK_OK(made);
                streams.push_back(*made);
            });
            if (!is_free && waited == 0) waited = streams.size();
            if (waited != 0) break;
        }
        while (streams.size() < most) {
            const auto made = tested->create_stream(priority);
            CHECK_OK(made);
            streams.push_back(*made);
        }
        size_t behind = 0;
        for (const GpuStream stream : streams) {
            const auto launch_and_wait = [&] {
                CHECK_OK(tested->launch(stream, KernelId::fold_float, 1, Batch{}));
                CHECK_OK(tested->synchronize(stream));
            };
            if (!ends_beside(blocked_streams, launch_and_wait)) behind++;
        }
        std::printf("beside a blocked stream, %s priority: ",
                    priority == StreamPriority::usual ? "usual" : "greatest");
        if (waited == 0)
            std::printf("%zu streams are created", most);
        else
            std::printf("the creation of stream %zu waits", waited);
        std::printf("; of %zu streams %zu wait\n", most, behind);
        std::fflush(stdout);
        for (const GpuStream stream : streams) tested->destroy_stream(stream);
    }
}

// What the library asks of a GPU, and what it has got.
class Requests {
public:
    struct Operation {
        const char *what;
        bool is_for_calls; // else for the beginning or the end of a communicator
        std::function<void()> run;
    };
    std::vector<Operation> operations() {
        std::vector<Operation> all = for_calls();
        for (Operation &other : for_communicators()) all.push_back(std::move(other));
        return all;
    }
    ~Requests() {
        for (const GpuStream stream : streams_) tested->destroy_stream(stream);
        tested->pool_release(shared_, large);
        tested->release_pinned(pinned_, small);
    }

private:
    static constexpr size_t small = 4096, large = size_t{64} << 20;

    template <class T> static T made(const Result<T> &result) {
        CHECK_OK(result);
        return *result;
    }
    void create_streams(int count) {
        while (count-- > 0)
            streams_.push_back(made(tested->create_stream(StreamPriority::greatest)));
    }
    std::vector<Operation> for_calls() {
        return {
            {"create an event", true, [this] { mark_ = made(tested->create_event()); }},
            {"allocate 4 KiB", true, [this] { few_ = made(tested->allocate_private(small)); }},
            {"allocate 64 MiB", true, [this] { many_ = made(tested->allocate_private(large)); }},
            {"free 4 KiB", true, [this] { tested->free_private(few_); }},
            {"free 64 MiB", true, [this] { tested->free_private(many_); }},
            {"pin memory", true, [this] { CHECK_OK(tested->pin(host_.data(), host_.size())); }},
        };
    }
    std::vector<Operation> for_communicators() {
        return {
            {"unpin memory", false, [this] { tested->unpin(host_.data()); }},
            {"create a stream", false, [this] { create_streams(1); }},
            {"create 16 more streams", false, [this] { create_streams(16); }},
            {"allocate pinned memory", false,
             [this] { pinned_ = made(tested->acquire_pinned(small)); }},
            {"allocate shared memory", false,
             [this] { shared_ = made(tested->pool_acquire(large)); }},
            {"name it", false, [this] { (void)tested->name_memory(shared_, large); }},
            {"open the GPU", false, [] { CHECK_OK(open_gpu(tested->traits().name)); }},
            {"destroy an event", false, [this] { tested->destroy_event(mark_); }},
            {"destroy a stream", false,
             [this] {
                 tested->destroy_stream(streams_.back());
                 streams_.pop_back();
             }},
        };
    }

    std::vector<std::byte> host_ = std::vector<std::byte>(size_t{8} << 20);
    std::vector<GpuStream> streams_;
    GpuEventHandle mark_ = nullptr;
    std::byte *few_ = nullptr, *many_ = nullptr, *shared_ = nullptr, *pinned_ = nullptr;
};

// Says of everything that the library asks of a GPU whether it waits for streams that are blocked,
// and fails if that would hold calls up.
void calls_need_nothing_that_waits() {
    if (!tested->traits().has_stream_waits) return;
    std::string waiting;
    for (const size_t blocked : {size_t{1}, size_t{8}}) {
        std::vector<std::unique_ptr<BlockedStream>> blocked_streams(blocked);
        for (auto &stream : blocked_streams) stream = std::make_unique<BlockedStream>();
        Requests requests;
        std::string all;
        for (const Requests::Operation &operation : requests.operations()) {
            // Of an operation that may wait, a wait is only printed. One that must not wait takes
            // long on a loaded machine: it fills or clears 64 MiB.
            const std::chrono::milliseconds patience(operation.is_for_calls ? 20000 : 300);
            if (ends_beside(blocked_streams, operation.run, patience)) continue;
            all += std::string(all.empty() ? "" : ", ") + operation.what;
            if (operation.is_for_calls) waiting += std::string("; ") + operation.what;
        }
        std::printf("beside %zu blocked streams these wait: %s\n", blocked,
                    all.empty() ? "none" : all.c_str());
    }
    if (!waiting.empty()) throw qtest::Failure{"what calls need waits" + waiting};
}

void bytes_are_those_of_the_cpu() {
    const std::vector<Task> tasks = all_tasks();
    const uint64_t each = std::max<uint64_t>(values_asked_for() / tasks.size(), 1);
    std::atomic<size_t> next = 0;
    std::mutex mutex;
    std::vector<std::string> failures; // one for each task that fails
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::clamp(std::thread::hardware_concurrency(), 1U, 16U); i++)
        threads.emplace_back([&, i] {
            Bench bench(i);
            for (size_t task = next++; task < tasks.size(); task = next++) {
                try {
                    bench.run(tasks[task], each);
                } catch (const qtest::Failure &failure) {
                    const std::lock_guard lock(mutex);
                    failures.push_back(failure.text);
                }
            }
        });
    threads.clear();
    for (const std::string &failure : failures) std::printf("%s\n", failure.c_str());
    CHECK_EQ(failures.size(), size_t{0});
    std::printf("%zu pairs of codec and type, %llu values of each\n", tasks.size(),
                static_cast<unsigned long long>(each));
}

} // namespace

int main(int argc, char **argv) {
    if (!open_tested(argc, argv)) return skipped;
    const CMUnitTest all[] = {QTEST(nothing_waits_for_a_blocked_stream),
                              QTEST(calls_need_nothing_that_waits), QTEST(streams_have_queues),
                              QTEST(bytes_are_those_of_the_cpu)};
    const CMUnitTest under_sanitizer[] = {QTEST(bytes_are_those_of_the_cpu)};
    const int failed = std::getenv("QTEST_SANITIZER")
                           ? cmocka_run_group_tests(under_sanitizer, nullptr, nullptr)
                           : cmocka_run_group_tests(all, nullptr, nullptr);
    tested.reset();
    return failed;
}
