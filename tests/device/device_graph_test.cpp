// Tests GpuStreamQueue of lib/comm/streams with graphs of emulated GPUs: each replay of a captured
// call runs the call again, with new noise.
#include "device_ranks.hpp"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>

using namespace qtest;

namespace {

const std::vector<const char *> two{"emulated:0", "emulated:1"};

// Captures what `body` enqueues on the stream, and instantiates the graph.
qcclEmulatedGraphExec_t
capture(qcclEmulatedStream_t stream, const std::function<void()> &body,
        qcclEmulatedCaptureMode_t mode = qcclEmulatedCaptureModeThreadLocal) {
    CHECK_EMULATED(qcclEmulatedStreamBeginCapture(stream, mode));
    body();
    qcclEmulatedGraph_t graph = nullptr;
    CHECK_EMULATED(qcclEmulatedStreamEndCapture(stream, &graph));
    qcclEmulatedGraphExec_t exec = nullptr;
    CHECK_EMULATED(qcclEmulatedGraphInstantiate(&exec, graph));
    CHECK_EMULATED(qcclEmulatedGraphDestroy(graph));
    return exec;
}

void a_captured_call_is_made_by_every_replay() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(1000, 1);
        const auto graph = capture(rank.stream, [&] {
            check(all_reduce(values, rank, rank.stream));
            check(all_reduce(values, rank, rank.stream));
        });
        CHECK(values.are(1)); // the capture has not run anything
        for (int i = 0; i < 3; i++) CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
        check(all_reduce(values, rank, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(128));
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

// What the test below has of a call with layers: its values, and the state of its first layer.
struct LayeredCall {
    static constexpr size_t count = 3000, first = 2000;

    LayeredCall(size_t number, const GpuRank &rank) : send(count, 0), recv(count, 0) {
        std::vector<float> input(count);
        for (size_t i = 0; i < count; i++)
            input[i] = std::sin(static_cast<float>(i + 31 * number + 1));
        CHECK_EMULATED(qcclEmulatedMemcpy(send.data(), input.data(), count * sizeof(float)));
        check(qcclStateCreate(&state, rank.comm, first, qcclFloat32, nullptr));
    }
    ~LayeredCall() { (void)qcclStateDestroy(state); }
    LayeredCall(const LayeredCall &) = delete;

    void make(const GpuRank &rank, const CodecHandle &codec) {
        std::array<qcclLayer_t, 3> layers{};
        layers[0].count = first;
        layers[0].state = state;
        layers[1].count = 10;
        layers[2].count = count - first - 10;
        layers[2].dimensions = 1;
        for (qcclLayer_t &layer : layers) layer.codec = codec.get();
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.layers = layers.data();
        config.nlayers = layers.size();
        check(qcclAllReduceConfig(send.data(), recv.data(), count, qcclFloat32, qcclSum, rank.comm,
                                  rank.stream, &config));
        for (qcclLayer_t &layer : layers) layer.count = SIZE_MAX; // nothing reads the list later
    }

    GpuFloats send, recv;
    qcclState_t state = nullptr;
};

// A call of no graph is the twin of each replay. The first layer's state makes the sums differ from
// replay to replay.
void layers_of_a_captured_call_are_reduced_by_every_replay() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t number, GpuRank &rank) {
        const CodecHandle codec(*parse_codec("int4"), 0);
        LayeredCall captured(number, rank), twin(number, rank);
        const auto graph = capture(rank.stream, [&] { captured.make(rank, codec); });
        CHECK(captured.recv.are(0));
        std::vector<float> latest;
        for (int i = 0; i < 3; i++) {
            CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
            twin.make(rank, codec);
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
            const std::vector<float> sums = captured.recv.read();
            CHECK(sums == twin.recv.read());
            CHECK(sums != latest);
            latest = sums;
        }
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

// Inputs have one sign: the codes of the other sign end at a smaller magnitude, and larger values
// are clipped.
float input_of(size_t rank, size_t i) {
    return 0.1F + std::abs(std::sin(static_cast<float>(i + 31 * rank + 1)));
}

// Every replay draws its own noise, so the mean of many replays has the error of a mean of many
// samples.
void replays_draw_other_noise() {
    constexpr size_t count = 64;
    constexpr int replays = 400; // the nightly script sets more
    const char *const more = std::getenv("QTEST_REPLAYS");
    const int times = more ? std::atoi(more) : replays;
    GpuRanks ranks(two);
    std::array<std::vector<double>, 2> sums;
    ranks.on_each([&](size_t number, GpuRank &rank) {
        std::vector<float> input(count);
        for (size_t i = 0; i < count; i++) input[i] = input_of(number, i);
        GpuFloats send(count, 0), recv(count, 0);
        CHECK_EMULATED(qcclEmulatedMemcpy(send.data(), input.data(), count * sizeof(float)));
        const CodecHandle codec(*parse_codec("int4:round=stochastic"), 9);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.codec = codec.get();
        config.algorithm = "direct";
        const auto graph = capture(rank.stream, [&] {
            check(qcclAllReduceConfig(send.data(), recv.data(), count, qcclFloat32, qcclSum,
                                      rank.comm, rank.stream, &config));
        });
        sums[number].assign(count, 0);
        for (int i = 0; i < times; i++) {
            CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
            const auto result = recv.read();
            for (size_t k = 0; k < count; k++) sums[number][k] += static_cast<double>(result[k]);
        }
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
    CHECK(sums[0] == sums[1]);
    // Each value is rounded twice, by at most an eighth of the largest magnitude of a sum. The
    // standard deviation of the mean is thus below that unit divided by the root of the number of
    // replays.
    double worst = 0, mean = 0;
    for (size_t i = 0; i < count; i++) {
        const double exact =
            static_cast<double>(input_of(0, i)) + static_cast<double>(input_of(1, i));
        const double error = sums[0][i] / times - exact;
        worst = std::max(worst, std::abs(error));
        mean += error / count;
    }
    const double unit = 2.2 / 8, sigma = unit / std::sqrt(times);
    CHECK(worst < 6 * sigma);
    CHECK(std::abs(mean) < 6 * sigma / std::sqrt(count));
    CHECK(worst > 0);
}

// A graph captures the call, not the way it runs: the guard may switch the codec between replays.
void a_guard_sends_replays_lossless() {
    constexpr size_t count = 4096;
    GpuRanks ranks(two);
    ranks.on_each([&](size_t number, GpuRank &rank) {
        std::vector<float> input(count);
        for (size_t i = 0; i < count; i++) input[i] = input_of(number, i);
        GpuFloats send(count, 0), recv(count, 0);
        CHECK_EMULATED(qcclEmulatedMemcpy(send.data(), input.data(), count * sizeof(float)));
        const CodecHandle codec(*parse_codec("int4:guard=nmse:1e-5,min=0"), 0);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        config.codec = codec.get();
        const auto graph = capture(rank.stream, [&] {
            check(qcclAllReduceConfig(send.data(), recv.data(), count, qcclFloat32, qcclSum,
                                      rank.comm, rank.stream, &config));
        });
        for (const bool is_lossless : {false, true, true}) {
            CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
            const auto result = recv.read();
            bool is_exact = true;
            for (size_t i = 0; i < count; i++)
                is_exact = is_exact && result[i] == input_of(0, i) + input_of(1, i);
            CHECK_EQ(is_exact, is_lossless);
        }
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

void a_graph_may_outlive_its_communicator() {
    GpuRanks ranks(two);
    std::array<qcclEmulatedGraphExec_t, 2> graphs{};
    ranks.on_each([&](size_t number, GpuRank &rank) {
        GpuFloats values(10, 1);
        graphs[number] =
            capture(rank.stream, [&] { check(all_reduce(values, rank, rank.stream)); });
        check(qcclCommDestroy(rank.comm));
        rank.comm = nullptr;
        CHECK_EMULATED(qcclEmulatedGraphLaunch(graphs[number], rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(1));
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graphs[number]));
    });
}

struct Forks {
    Forks() {
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&branch));
        CHECK_EMULATED(qcclEmulatedEventCreate(&fork));
        CHECK_EMULATED(qcclEmulatedEventCreate(&join));
    }
    ~Forks() {
        (void)qcclEmulatedStreamDestroy(branch);
        (void)qcclEmulatedEventDestroy(fork);
        (void)qcclEmulatedEventDestroy(join);
    }
    Forks(const Forks &) = delete;
    void part(qcclEmulatedStream_t stream) {
        CHECK_EMULATED(qcclEmulatedEventRecord(fork, stream));
        CHECK_EMULATED(qcclEmulatedStreamWaitEvent(branch, fork));
    }
    void meet(qcclEmulatedStream_t stream) {
        CHECK_EMULATED(qcclEmulatedEventRecord(join, branch));
        CHECK_EMULATED(qcclEmulatedStreamWaitEvent(stream, join));
    }
    qcclEmulatedStream_t branch = nullptr;
    qcclEmulatedEvent_t fork = nullptr, join = nullptr;
};

void dawdle(qcclEmulatedStream_t stream) {
    CHECK_EMULATED(qcclEmulatedLaunchHostFunc(
        stream, [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); },
        nullptr));
}

// Captures two branches with a call each; each rank reaches another one of the two first. `between`
// runs between the captures of the two calls and leaves the values of `others` unchanged.
void check_branches(const std::function<void(GpuRank &rank, GpuFloats &others)> &between) {
    GpuRanks ranks(two);
    ranks.on_each([&](size_t number, GpuRank &rank) {
        GpuFloats a(100, 1), b(100, 10), others(100, 100);
        Forks forks;
        const auto graph = capture(rank.stream, [&] {
            forks.part(rank.stream);
            dawdle(number == 0 ? rank.stream : forks.branch);
            check(all_reduce(a, rank, rank.stream));
            between(rank, others);
            check(all_reduce(b, rank, forks.branch));
            forks.meet(rank.stream);
        });
        for (int i = 0; i < 3; i++) CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK_EQ(async_error(rank.comm), qcclSuccess);
        CHECK(a.are(8));
        CHECK(b.are(80));
        CHECK(others.are(100));
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

void branches_make_calls_in_the_order_of_their_capture() {
    check_branches([](GpuRank &, GpuFloats &) {});
}

// Another capture of the same communicator's calls takes place meanwhile; its graph is never
// launched.
void captures_may_overlap() {
    check_branches([](GpuRank &rank, GpuFloats &others) {
        const Forks forks;
        const auto graph = capture(
            forks.branch, [&] { check(all_reduce(others, rank, forks.branch)); },
            qcclEmulatedCaptureModeRelaxed);
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

// The calls have equal shape, so only their order distinguishes them.
void ranks_that_differ_in_order_are_told() {
    for (const size_t count : {size_t{100}, size_t{100000}}) {
        GpuRanks ranks(two);
        ranks.on_each([&](size_t number, GpuRank &rank) {
            GpuFloats a(count, 1), b(count, 10);
            Forks streams;
            const auto graph =
                capture(rank.stream, [&] { check(all_reduce(a, rank, rank.stream)); });
            if (number == 0) {
                CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
                streams.part(rank.stream);
                (void)all_reduce(b, rank, streams.branch);
            } else {
                (void)all_reduce(b, rank, streams.branch);
                streams.meet(rank.stream);
                CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
            }
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(streams.branch));
            CHECK_EQ(async_error(rank.comm), qcclMismatch);
            const std::string said = qcclGetLastError(rank.comm);
            CHECK(said.find("rank 1 makes a call of no graph, rank 0 captured call 1, in call 1") !=
                  std::string::npos);
            CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
        });
    }
}

void a_graph_may_be_instantiated_twice() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(100, 1);
        Forks forks;
        CHECK_EMULATED(
            qcclEmulatedStreamBeginCapture(rank.stream, qcclEmulatedCaptureModeThreadLocal));
        check(all_reduce(values, rank, rank.stream));
        qcclEmulatedGraph_t graph = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamEndCapture(rank.stream, &graph));
        std::array<qcclEmulatedGraphExec_t, 2> execs{};
        for (auto &exec : execs) CHECK_EMULATED(qcclEmulatedGraphInstantiate(&exec, graph));
        CHECK_EMULATED(qcclEmulatedGraphDestroy(graph));
        for (int i = 0; i < 5; i++) { // both at once
            CHECK_EMULATED(qcclEmulatedGraphLaunch(execs[0], rank.stream));
            CHECK_EMULATED(qcclEmulatedGraphLaunch(execs[1], forks.branch));
        }
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(forks.branch));
        CHECK(values.are(1024));
        for (const auto exec : execs) CHECK_EMULATED(qcclEmulatedGraphExecDestroy(exec));
    });
}

// Captures a call whose n-th request to the runtime fails, or that is made on a stream of another
// GPU (n is 0). Returns whether the call was refused, and checks that the graph does not contain a
// refused call.
bool is_refused(uint64_t n, GpuRank &rank) {
    GpuFloats send(100, 1), recv(100, 10);
    CHECK_EMULATED(qcclEmulatedSetDevice(n == 0 ? 2 : rank.gpu));
    qcclEmulatedStream_t stream = nullptr;
    CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&stream));
    qcclResult_t result = qcclSuccess;
    const auto graph = capture(stream, [&] {
        qcclEmulatedFailCall(n, qcclEmulatedErrorLaunchFailure);
        result =
            qcclAllReduce(send.data(), recv.data(), 100, qcclFloat32, qcclSum, rank.comm, stream);
        qcclEmulatedFailCall(0, qcclEmulatedSuccess);
    });
    if (result != qcclSuccess) {
        CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(stream));
        CHECK(recv.are(10));
    }
    CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    CHECK_EMULATED(qcclEmulatedStreamDestroy(stream));
    CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
    return result != qcclSuccess;
}

void a_call_that_is_refused_is_in_no_graph() {
    bool was_refused = true;
    uint64_t n = 0;
    for (; was_refused; n++) {
        GpuRanks ranks({"emulated:0"});
        ranks.on_each([&](size_t, GpuRank &rank) { was_refused = is_refused(n, rank); });
    }
    CHECK(n > 10);
}

void the_host_makes_the_call_of_each_launch_by_itself() {
    const char *const devices[] = {"emulated:0", "host"};
    std::array<qcclComm_t, 2> comms{};
    check(qcclCommInitAll(comms.data(), 2, devices));
    std::vector<float> on_host(100, 1);
    std::thread host([&] {
        for (int i = 0; i < 3; i++)
            (void)qcclAllReduce(on_host.data(), on_host.data(), on_host.size(), qcclFloat32,
                                qcclSum, comms[1], nullptr);
    });
    CHECK_EMULATED(qcclEmulatedSetDevice(0));
    GpuRank rank{.gpu = 0, .comm = comms[0], .stream = nullptr};
    CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&rank.stream));
    GpuFloats values(100, 1);
    const auto graph = capture(rank.stream, [&] { check(all_reduce(values, rank, rank.stream)); });
    for (int i = 0; i < 3; i++) CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
    CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
    host.join();
    CHECK(values.are(8));
    CHECK(on_host[99] == 8);
    CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    CHECK_EMULATED(qcclEmulatedStreamDestroy(rank.stream));
    for (const qcclComm_t comm : comms) check(qcclCommDestroy(comm));
}

// The end of a graph takes locks that other threads hold while they call the GPU's runtime.
void graphs_end_while_communicators_come_and_go() {
    GpuRanks ranks({"emulated:0"});
    std::atomic<bool> is_over = false;
    std::thread others([&] {
        const char *const devices[] = {"emulated:1", "host"}; // the host rank's memory is pinned
        for (int i = 0; i < 60; i++) {
            std::array<qcclComm_t, 2> comms{};
            if (qcclCommInitAll(comms.data(), 2, devices) != qcclSuccess) break;
            for (const qcclComm_t comm : comms) (void)qcclCommDestroy(comm);
        }
        is_over = true;
    });
    ranks.on_each([&](size_t, GpuRank &rank) {
        GpuFloats values(10, 1);
        while (!is_over) {
            const auto graph = capture(rank.stream, [&] {
                for (int i = 0; i < 20; i++) check(all_reduce(values, rank, rank.stream));
            });
            CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
        }
    });
    others.join();
}

void what_a_graph_holds_goes_with_it() {
    std::array<size_t, 2> held{};
    for (const size_t round : {0U, 1U}) {
        constexpr int graphs = 40;
        GpuRanks ranks(two);
        ranks.on_each([](size_t, GpuRank &rank) {
            GpuFloats values(100, 1);
            for (int i = 0; i < graphs; i++) {
                const auto graph =
                    capture(rank.stream, [&] { check(all_reduce(values, rank, rank.stream)); });
                CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
                CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
                CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
                values.fill(1);
            }
            check(qcclCommDestroy(rank.comm));
            rank.comm = nullptr;
        });
        held[round] = qcclEmulatedCountHeld();
    }
    CHECK_EQ(held[0], held[1]);
    // Stream waits are reused, so fewer remain than graphs were captured.
    CHECK(held[0] < 40);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_captured_call_is_made_by_every_replay),
        QTEST(layers_of_a_captured_call_are_reduced_by_every_replay),
        QTEST(replays_draw_other_noise),
        QTEST(a_guard_sends_replays_lossless),
        QTEST(a_graph_may_outlive_its_communicator),
        QTEST(branches_make_calls_in_the_order_of_their_capture),
        QTEST(ranks_that_differ_in_order_are_told),
        QTEST(a_graph_may_be_instantiated_twice),
        QTEST(captures_may_overlap),
        QTEST(a_call_that_is_refused_is_in_no_graph),
        QTEST(the_host_makes_the_call_of_each_launch_by_itself),
        QTEST(graphs_end_while_communicators_come_and_go),
        QTEST(what_a_graph_holds_goes_with_it),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
