// Calls that graphs of emulated GPUs capture: each replay makes them anew, with noise of its own.
#include "device_ranks.hpp"

#include <array>
#include <cmath>
#include <cstdlib>

using namespace qtest;

namespace {

const std::vector<const char *> two{"emulated:0", "emulated:1"};

// What a stream captures while `body` runs, instantiated.
qcclEmulatedGraphExec_t capture(qcclEmulatedStream_t stream, const std::function<void()> &body) {
    CHECK_EMULATED(qcclEmulatedStreamBeginCapture(stream, qcclEmulatedCaptureModeThreadLocal));
    body();
    qcclEmulatedGraph_t graph = nullptr;
    CHECK_EMULATED(qcclEmulatedStreamEndCapture(stream, &graph));
    qcclEmulatedGraphExec_t exec = nullptr;
    CHECK_EMULATED(qcclEmulatedGraphInstantiate(&exec, graph));
    CHECK_EMULATED(qcclEmulatedGraphDestroy(graph));
    return exec;
}

void a_captured_call_is_made_by_every_replay() {
    Threads ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(1000, 1);
        const auto graph = capture(rank.stream, [&] {
            check(all_reduce(values, rank, rank.stream));
            check(all_reduce(values, rank, rank.stream));
        });
        CHECK(values.are(1)); // nothing has been done yet
        for (int i = 0; i < 3; i++) CHECK_EMULATED(qcclEmulatedGraphLaunch(graph, rank.stream));
        check(all_reduce(values, rank, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(128));
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(graph));
    });
}

// Of one sign: of the other one codes go less far, and what is beyond them is cut off.
float input_of(size_t rank, size_t i) {
    return 0.1F + std::abs(std::sin(static_cast<float>(i + 31 * rank + 1)));
}

// Every replay draws noise of its own: the mean of many has the error of the mean of many.
void replays_draw_other_noise() {
    constexpr size_t count = 64;
    constexpr int replays = 400; // the script of the night takes more
    const char *const more = std::getenv("QTEST_REPLAYS");
    const int times = more ? std::atoi(more) : replays;
    Threads ranks(two);
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
    // Each value is rounded twice, by units of an eighth of the largest magnitude of a sum at most:
    // the standard deviation of the mean is below a unit over the root of the number of replays.
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

void a_graph_may_outlive_its_communicator() {
    Threads ranks(two);
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

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_captured_call_is_made_by_every_replay),
        QTEST(replays_draw_other_noise),
        QTEST(a_graph_may_outlive_its_communicator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
