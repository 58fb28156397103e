// How a communicator watches streams of an emulated GPU: whether they may hold up its own, and how
// its thread sleeps until they come.
#include "device_ranks.hpp"

#include <atomic>
#include <chrono>

#include <sys/prctl.h>

using namespace qtest;
using namespace std::chrono_literals;

namespace {

// A stream at a gate must not stand in one queue with the library's own, which have the greatest
// priority.
void a_stream_of_the_greatest_priority_is_told_once() {
    for (int round = 0; round < 2; round++) { // by each communicator
        LogLines lines;
        Threads ranks({"emulated:0"}, lines.config());
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

// The thread that looks for streams sleeps a few microseconds at a time, which the system makes
// more than fifty unless the thread asks for exact sleeps.
void the_thread_of_a_queue_sleeps_exactly() {
    static std::atomic<int> slack;
    slack = -1;
    qcclConfig_t config = QCCL_CONFIG_INIT;
    config.idle.function = [](void *) { slack = prctl(PR_GET_TIMERSLACK); };
    Threads ranks({"emulated:0", "emulated:1"}, config);
    ranks.on_each([](size_t number, GpuRank &rank) {
        GpuFloats values(100, 1);
        // Of rank 0, whose call waits on that thread.
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
