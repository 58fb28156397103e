// Tests the emulated runtime's streams: which streams wait for each other, and their priorities.
#include "emulated_kit.hpp"

#include <utility>

using namespace emulated_kit;
using namespace gpu_kit;

// Blocks stream `earlier`, and returns whether work on stream `later` waits for it.
static bool waits_for(qcclEmulatedStream_t later, qcclEmulatedStream_t earlier) {
    BlockedStream blocked;
    blocked.hold(earlier);
    std::atomic<bool> is_through = false;
    const auto tell = [](void *flag) { *static_cast<std::atomic<bool> *>(flag) = true; };
    DO(LaunchHostFunc(later, tell, &is_through));
    nap();
    const bool waits = !is_through;
    blocked.open();
    DO(StreamSynchronize(later));
    DO(StreamSynchronize(earlier));
    CHECK(is_through);
    return waits;
}

static void default_streams_wait_as_they_do_on_gpus() {
    const StreamHandle blocking(true), other(true), free_one(false);
    CHECK(waits_for(nullptr, blocking));
    CHECK(waits_for(blocking, nullptr));
    CHECK(waits_for(nullptr, qcclEmulatedStreamPerThread));
    CHECK(waits_for(qcclEmulatedStreamPerThread, nullptr));
    CHECK(!waits_for(blocking, other));
    CHECK(!waits_for(qcclEmulatedStreamPerThread, blocking));
    CHECK(!waits_for(nullptr, free_one));
    CHECK(!waits_for(free_one, nullptr));
    CHECK(!waits_for(free_one, blocking));
    DO(SetDevice(1)); // each GPU has its own default stream
    const StreamHandle elsewhere(true);
    CHECK(waits_for(nullptr, elsewhere));
    CHECK(!waits_for(nullptr, blocking));
    DO(SetDevice(0));
    CHECK(!waits_for(nullptr, elsewhere));
}

static void streams_keep_their_priority() {
    int least = -1, greatest = 1, priority = 1;
    DO(DeviceGetStreamPriorityRange(&least, &greatest));
    CHECK(least == 0 && greatest == -5);
    for (const auto &[asked, given] : {std::pair{0, 0}, {-3, -3}, {-5, -5}, {-9, -5}, {2, 0}}) {
        qcclEmulatedStream_t stream = nullptr;
        DO(StreamCreateWithPriority(&stream, qcclEmulatedStreamDefault, asked));
        DO(StreamGetPriority(stream, &priority));
        CHECK_EQ(priority, given);
        DO(StreamDestroy(stream));
        REFUSED(InvalidHandle, StreamGetPriority(stream, &priority));
    }
    const StreamHandle usual;
    for (const qcclEmulatedStream_t stream :
         {usual.handle, qcclEmulatedStream_t{}, qcclEmulatedStreamPerThread}) {
        priority = 1;
        DO(StreamGetPriority(stream, &priority));
        CHECK_EQ(priority, 0);
    }
    qcclEmulatedStream_t none = nullptr;
    REFUSED(InvalidValue, StreamCreateWithPriority(&none, 2, 0));
    REFUSED(InvalidValue, StreamGetPriority(usual, nullptr));
    qcclEmulatedStream_t apart = nullptr;
    DO(StreamCreateWithPriority(&apart, qcclEmulatedStreamNonBlocking, -5));
    CHECK(!waits_for(nullptr, apart));
    DO(StreamDestroy(apart));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(default_streams_wait_as_they_do_on_gpus),
        QTEST(streams_keep_their_priority),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
