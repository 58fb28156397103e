// api/gpu_queue: calls on streams are made one after the other, each before its stream goes on, as
// many as there are, though a gate opens so and so often only.
#include "gpu_kit.hpp"

#include "api/gpu_queue.hpp"

#include <atomic>

using namespace qccl;
using namespace gpu_kit;

namespace {

constexpr uint32_t most_openings = 3;

struct Streams {
    Streams() : gpu(open_gpu(0)) {
        for (GpuStream &stream : all) {
            const auto made = gpu->create_stream();
            CHECK_OK(made);
            stream = *made;
        }
    }
    ~Streams() {
        for (const GpuStream stream : all) gpu->destroy_stream(stream);
    }
    Streams(const Streams &) = delete;
    void synchronize() {
        for (const GpuStream stream : all) CHECK_OK(gpu->synchronize(stream));
    }
    std::shared_ptr<Gpu> gpu;
    GpuStream all[2]{};
};

std::unique_ptr<GpuQueue> queue_of(const Streams &streams) {
    auto queue = GpuQueue::create(
        streams.gpu, std::nullopt, [] { return false; }, most_openings);
    CHECK_OK(queue);
    return std::move(*queue);
}

} // namespace

static void calls_go_beyond_what_a_gate_counts() {
    Streams streams;
    const auto queue = queue_of(streams);
    constexpr int calls = 20;
    struct Seen {
        std::atomic<int> made = 0, wrong = 0;
    } seen;
    struct Look {
        Seen *seen;
        int after;
    } looks[calls];
    for (int call = 0; call < calls; call++) {
        const GpuStream stream = streams.all[call % 2];
        CHECK_OK(queue->enqueue(stream, [&seen, call](const Done &arrived, uint64_t captured) {
            nap();
            if (!arrived || captured != 0 || seen.made != call) seen.wrong++;
            seen.made = call + 1;
        }));
        looks[call] = {&seen, call};
        // A stream that goes on too early finds its call not made.
        CHECK_OK(streams.gpu->call_host(
            stream,
            [](void *context) {
                const Look &look = *static_cast<Look *>(context);
                if (look.seen->made <= look.after) look.seen->wrong++;
            },
            &looks[call]));
    }
    queue->await_all();
    streams.synchronize();
    CHECK_EQ(seen.made.load(), calls);
    CHECK_EQ(seen.wrong.load(), 0);
}

static void gates_serve_the_next_queue() {
    Streams streams;
    const size_t before = [&] {
        (void)queue_of(streams);
        return qcclEmulatedCountHeld();
    }();
    for (int round = 0; round < 3; round++) {
        const auto queue = queue_of(streams);
        for (uint32_t call = 0; call < most_openings; call++)
            CHECK_OK(queue->enqueue(streams.all[0], [](const Done &, uint64_t) {}));
        queue->await_all();
        streams.synchronize();
    }
    CHECK_EQ(qcclEmulatedCountHeld(), before);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(calls_go_beyond_what_a_gate_counts),
        QTEST(gates_serve_the_next_queue),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
