// How a communicator watches streams of an emulated GPU: whether they may hold up its own.
#include "device_ranks.hpp"

using namespace qtest;

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

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_stream_of_the_greatest_priority_is_told_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
