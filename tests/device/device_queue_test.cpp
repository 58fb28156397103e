// Tests GpuStreamQueue of lib/comm/streams on an emulated GPU: the warning about streams that may
// block the library's own, and the sleeps of the thread that polls the streams.
#include "device_ranks.hpp"

#include <atomic>
#include <chrono>

#include <sys/prctl.h>

using namespace qtest;
using namespace std::chrono_literals;

namespace {

// The library's own streams have the greatest priority. A user's stream that waits for its call
// must not share a queue with them, so the library warns about such a stream.
void a_stream_of_the_greatest_priority_is_told_once() {
    for (int round = 0; round < 2; round++) { // once for each communicator
        LogLines lines;
        GpuRanks ranks({"emulated:0"}, lines.config());
        CHECK_EMULATED(qcclEmulatedSetDevice(0));
        GpuFloats values(100, 1);
        for (const int priority : {0, -4, -5, -5}) {
            qcclEmulatedStream_t stream = nullptr;
            CHECK_EMULATED(qcclEmulatedStreamCreateWithPriority(
                &stream, qcclEmulatedStreamNonBlocking, priority));
            check(all_reduce(values, ranks[0], stream));
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(stream));
            CHECK_EMULATED(qcclEmulatedStreamDestroy(stream));
            CHECK_EQ(lines.count("has the greatest priority"), priority == -5 ? 1U : 0U);
        }
        check(all_reduce(values, ranks[0], nullptr));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(nullptr));
        CHECK(values.are(1));
    }
}

// The thread that polls streams sleeps a few microseconds at a time. The kernel would extend each
// sleep to more than fifty unless the thread sets its timer slack.
void the_thread_of_a_queue_sleeps_exactly() {
    static std::atomic<int> slack;
    slack = -1;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.idle.function = [](void *) { slack = prctl(PR_GET_TIMERSLACK); };
    GpuRanks ranks({"emulated:0", "emulated:1"}, config);
    ranks.on_each([](size_t number, GpuRank &rank) {
        GpuFloats values(100, 1);
        // Rank 1 waits until that thread of rank 0 has called the idle function; rank 0's call
        // waits meanwhile.
        while (number == 1 && slack < 0) std::this_thread::sleep_for(1ms);
        check(all_reduce(values, rank, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(2));
    });
    CHECK_EQ(slack.load(), 1);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_stream_of_the_greatest_priority_is_told_once),
        QTEST(the_thread_of_a_queue_sleeps_exactly),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
