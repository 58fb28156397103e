// Tests the emulated runtime: streams, events and the default streams keep the order that GPUs
// keep, and no other; memory is guarded and counted; calls and work fail where a test asks for it.
#include "emulated_kit.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

using namespace emulated_kit;
using namespace gpu_kit;

static void each_thread_chooses_its_gpu() {
    int count = 0, device = -1;
    DO(GetDeviceCount(&count));
    CHECK_EQ(count, 8);
    DO(SetDevice(7));
    std::thread([&] { qcclEmulatedGetDevice(&device); }).join();
    CHECK_EQ(device, 0);
    DO(GetDevice(&device));
    CHECK_EQ(device, 7);
    DO(SetDevice(0));
    REFUSED(InvalidDevice, SetDevice(8));
    REFUSED(InvalidDevice, SetDevice(-1));
    CHECK_EQ(std::string(qcclEmulatedGetErrorSentence()), "invalid device ordinal");
    qcclEmulatedDeviceProp_t odd, even;
    DO(GetDeviceProperties(&odd, 1));
    DO(GetDeviceProperties(&even, 2));
    CHECK_EQ(odd.warpSize, 64);
    CHECK_EQ(even.warpSize, 32);
    CHECK(std::memcmp(odd.uuid, even.uuid, sizeof odd.uuid) != 0);
}

static void memory_is_guarded() {
    const Ledger ledger;
    void *memory = nullptr;
    for (const int64_t beside : {int64_t{-1}, int64_t{-200}, int64_t{1001}, int64_t{1200}}) {
        DO(Malloc(&memory, 1001));
        static_cast<char *>(memory)[beside]++;
        REFUSED(GuardBytes, DeviceSynchronize());
        REFUSED(GuardBytes, StreamSynchronize(nullptr));
        REFUSED(GuardBytes, Free(memory));
    }
    CHECK_EQ(std::string(qcclEmulatedGetErrorSentence()),
             "something has written behind the last byte of 1001 bytes of GPU 0");
    DO(Malloc(&memory, 1000));
    std::memset(memory, 0, 1000);
    REFUSED(InvalidValue, Free(static_cast<char *>(memory) + 256));
    REFUSED(InvalidValue, FreeHost(memory));
    REFUSED(HostMemoryNotRegistered, HostUnregister(memory));
    DO(Free(memory));
    REFUSED(InvalidValue, Free(memory));
    DO(Free(nullptr));
    REFUSED(InvalidValue, Malloc(&memory, 0));
    ledger.check();
}

static void attributes_know_every_kind_of_memory() {
    const GpuArray<char> array(100);
    std::vector<char> mine(100);
    BlockedStream blocked;
    qcclEmulatedPointerAttributes_t found;
    DO(PointerGetAttributes(&found, array.at + 99));
    CHECK_EQ(found.type, qcclEmulatedMemoryTypeDevice);
    CHECK(found.base == array.at);
    CHECK_EQ(found.bytes, 100U);
    DO(PointerGetAttributes(&found, array.at + 100));
    CHECK_EQ(found.type, qcclEmulatedMemoryTypeUnregistered);
    DO(PointerGetAttributes(&found, blocked.word()));
    CHECK_EQ(found.type, qcclEmulatedMemoryTypeHost);
    DO(HostRegister(mine.data() + 10, 50));
    REFUSED(HostMemoryAlreadyRegistered, HostRegister(mine.data(), 11));
    REFUSED(HostMemoryAlreadyRegistered, HostRegister(mine.data() + 59, 10));
    DO(HostRegister(mine.data() + 60, 10));
    DO(PointerGetAttributes(&found, mine.data() + 59));
    CHECK_EQ(found.type, qcclEmulatedMemoryTypeHost);
    CHECK_EQ(found.bytes, 50U);
    DO(HostUnregister(mine.data() + 10));
    DO(HostUnregister(mine.data() + 60));
}

static void copies_wait_for_their_turn() {
    const GpuArray<int> array(1000);
    const StreamHandle stream;
    std::vector<int> from(1000, 1), to(1000, 0);
    BlockedStream blocked;
    blocked.hold(stream);
    DO(MemcpyAsync(array.at, from.data(), array.bytes(), stream));
    DO(MemcpyAsync(to.data(), array.at, array.bytes(), stream));
    std::fill(from.begin(), from.end(), 2); // before the copy runs, so the copy sees it
    blocked.open();
    DO(StreamSynchronize(stream));
    CHECK(std::ranges::all_of(to, [](int value) { return value == 2; }));
    REFUSED(InvalidValue, MemcpyAsync(array.at + 1, from.data(), array.bytes(), stream));
    REFUSED(InvalidValue, MemsetAsync(to.data(), 0, 4, stream)); // not the GPU's memory
    DO(MemsetAsync(array.at, 0, array.bytes(), stream));
    DO(StreamSynchronize(stream));
    DO(Memcpy(to.data(), array.at, array.bytes()));
    CHECK(std::ranges::all_of(to, [](int value) { return value == 0; }));
}

static void a_thread_has_a_stream_of_its_own() {
    BlockedStream blocked;
    blocked.hold(qcclEmulatedStreamPerThread);
    bool is_free = false;
    std::thread([&] {
        is_free = qcclEmulatedStreamSynchronize(qcclEmulatedStreamPerThread) == 0;
    }).join();
    CHECK(is_free);
    REFUSED(NotReady, StreamQuery(qcclEmulatedStreamPerThread));
    blocked.open();
    DO(StreamSynchronize(qcclEmulatedStreamPerThread));
    // The stream's work outlives the thread.
    BlockedStream second;
    std::string text;
    Appended appended{&text, 'x'};
    std::thread([&] {
        second.hold(qcclEmulatedStreamPerThread);
        qcclEmulatedLaunchHostFunc(qcclEmulatedStreamPerThread, Appended::write, &appended);
    }).join();
    second.open();
    DO(DeviceSynchronize());
    CHECK_EQ(text, "x");
}

static void events_are_where_they_were_recorded_last() {
    const StreamHandle first, second, third;
    const EventHandle event;
    BlockedStream blocked, later;
    DO(EventQuery(event)); // never recorded
    DO(EventSynchronize(event));
    DO(StreamWaitEvent(second, event));
    CHECK(second.is_done());
    blocked.hold(first);
    DO(EventRecord(event, first));
    DO(StreamWaitEvent(second, event));
    later.hold(first);
    DO(EventRecord(event, first));
    DO(StreamWaitEvent(third, event));
    nap();
    CHECK(!second.is_done());
    blocked.open();
    DO(StreamSynchronize(second)); // waits for the first recording only
    REFUSED(NotReady, EventQuery(event));
    CHECK(!third.is_done());
    later.open();
    DO(EventSynchronize(event));
    DO(StreamSynchronize(third));
    DO(SetDevice(2));
    const EventHandle elsewhere;
    REFUSED(InvalidHandle, EventRecord(elsewhere, first));
    DO(SetDevice(0));
}

static void streams_write_and_wait_for_values() {
    const StreamHandle first, second;
    const GpuArray<uint32_t> word(1);
    word[0] = 0xFFFFFFF0;
    std::string text;
    Appended a{&text, 'a'}, b{&text, 'b'};
    DO(StreamWaitValue32(first, word.at, 5));
    DO(LaunchHostFunc(first, Appended::write, &b));
    nap();
    DO(LaunchHostFunc(second, Appended::write, &a));
    DO(StreamWriteValue32(second, word.at, 7));
    DO(StreamSynchronize(first));
    CHECK_EQ(text, "ab");
    uint32_t local = 0;
    REFUSED(InvalidValue, StreamWaitValue32(first, &local, 1));
    REFUSED(InvalidValue, StreamWriteValue32(first, &local, 1));
}

static void functions_of_the_host_must_not_call_the_gpu() {
    const StreamHandle stream;
    static qcclEmulatedResult_t result = 0;
    DO(LaunchHostFunc(
        stream, [](void *) { result = qcclEmulatedDeviceSynchronize(); }, nullptr));
    DO(StreamSynchronize(stream));
    CHECK_EQ(result, qcclEmulatedErrorNotPermitted);
}

static void a_kernel_runs_as_every_thread() {
    for (const int device : {0, 1}) {
        DO(SetDevice(device));
        const unsigned threads = 128, blocks = 3;
        const GpuArray<unsigned> counts(threads * blocks);
        const StreamHandle stream;
        struct Argument {
            unsigned *counts, threads;
        } argument{counts.at, threads};
        std::memset(counts.at, 0, counts.bytes());
        const auto kernel = [](const void *given, unsigned block, unsigned thread) {
            const auto *const its = static_cast<const Argument *>(given);
            its->counts[block * its->threads + thread] += thread + 1;
        };
        DO(LaunchKernel(kernel, blocks, threads, &argument, sizeof argument, stream));
        argument = {}; // the launch has copied it
        DO(StreamSynchronize(stream));
        for (unsigned i = 0; i < counts.count; i++) CHECK_EQ(counts[i], i % threads + 1);
        REFUSED(InvalidValue, LaunchKernel(kernel, 1, 16, nullptr, 0, stream));
        REFUSED(InvalidValue, LaunchKernel(kernel, 0, threads, nullptr, 0, stream));
        DO(SetDevice(4));
        REFUSED(InvalidHandle, LaunchKernel(kernel, 1, threads, nullptr, 0, stream));
    }
    DO(SetDevice(0));
}

static void threads_of_a_block_meet_or_the_launch_fails() {
    const StreamHandle stream;
    const GpuArray<unsigned> values(64), sums(64);
    struct Argument {
        unsigned *values, *sums;
    } argument{values.at, sums.at};
    const auto meet = [](const void *given, unsigned, unsigned thread) {
        const auto *const its = static_cast<const Argument *>(given);
        its->values[thread] = thread;
        qcclEmulatedSyncThreads();
        its->sums[thread] = its->values[63 - thread] + its->values[thread];
    };
    DO(LaunchKernel(meet, 1, 64, &argument, sizeof argument, stream));
    DO(StreamSynchronize(stream));
    for (size_t i = 0; i < sums.count; i++) CHECK_EQ(sums[i], 63U);
    const auto part = [](const void *, unsigned, unsigned thread) {
        if (thread != 5) qcclEmulatedSyncThreads();
    };
    DO(LaunchKernel(part, 1, 64, nullptr, 0, stream));
    REFUSED(LaunchFailure, StreamSynchronize(stream));
    CHECK_EQ(std::string(qcclEmulatedGetErrorSentence()),
             "emulated GPU: a thread has ended while others wait at a barrier");
    qcclEmulatedSyncThreads(); // no effect outside a kernel
}

static void to_free_waits_for_the_gpu() {
    void *memory = nullptr, *of_host = nullptr;
    std::vector<char> mine(100);
    DO(Malloc(&memory, 100));
    DO(MallocHost(&of_host, 100));
    DO(HostRegister(mine.data(), mine.size()));
    const std::function<qcclEmulatedResult_t()> releases[] = {
        [&] { return qcclEmulatedFree(memory); }, [&] { return qcclEmulatedFreeHost(of_host); },
        [&] { return qcclEmulatedHostUnregister(mine.data()); }};
    for (const auto &release : releases) {
        const StreamHandle stream;
        BlockedStream blocked;
        blocked.hold(stream);
        std::atomic<bool> is_free = false;
        qcclEmulatedResult_t result = qcclEmulatedErrorNotReady;
        std::thread freeing([&] {
            result = release();
            is_free = true;
        });
        nap();
        CHECK(!is_free);
        blocked.open();
        freeing.join();
        CHECK_EQ(result, qcclEmulatedSuccess);
        DO(StreamSynchronize(stream));
    }
}

static void memory_in_the_order_of_a_stream() {
    const Ledger ledger;
    {
        const StreamHandle stream;
        BlockedStream blocked;
        void *memory = nullptr;
        blocked.hold(stream);
        DO(MallocAsync(&memory, 1000, stream));
        DO(MemsetAsync(memory, 1, 1000, stream));
        DO(FreeAsync(memory, stream));
        qcclEmulatedIpcMemHandle_t handle;
        REFUSED(InvalidValue, IpcGetMemHandle(&handle, memory));
        blocked.open();
        DO(StreamSynchronize(stream));
        REFUSED(InvalidValue, FreeAsync(memory, stream));
    }
    ledger.check();
}

static void what_a_destroyed_stream_had_to_do_is_done() {
    BlockedStream blocked;
    std::string text;
    Appended appended{&text, 'x'};
    {
        const StreamHandle stream;
        blocked.hold(stream);
        DO(LaunchHostFunc(stream, Appended::write, &appended));
    }
    blocked.open();
    DO(DeviceSynchronize());
    CHECK_EQ(text, "x");
    REFUSED(InvalidHandle, StreamSynchronize(reinterpret_cast<qcclEmulatedStream_t>(&blocked)));
}

static void failure_stays_and_spreads_by_events() {
    const StreamHandle first, second, third;
    const EventHandle event, before;
    std::string text;
    Appended appended{&text, 'x'};
    BlockedStream blocked;
    qcclEmulatedFailWork(2, qcclEmulatedErrorIllegalAddress); // the work behind the wait
    blocked.hold(first);
    DO(EventRecord(before, first));
    DO(MemsetAsync(blocked.word(), 1, 4, first));
    DO(EventRecord(event, first));
    DO(StreamWaitEvent(second, event));
    DO(LaunchHostFunc(second, Appended::write, &appended));
    DO(StreamWaitEvent(third, before));
    blocked.open();
    REFUSED(IllegalAddress, StreamSynchronize(second));
    CHECK_EQ(std::string(qcclEmulatedGetErrorSentence()), "this work was to fail");
    REFUSED(IllegalAddress, StreamSynchronize(first));
    REFUSED(IllegalAddress, EventQuery(event));
    REFUSED(IllegalAddress, StreamQuery(first));
    REFUSED(IllegalAddress, LaunchHostFunc(first, Appended::write, &appended));
    DO(EventQuery(before));
    DO(StreamSynchronize(third));
    CHECK(text.empty());
}

static void many_streams_keep_their_orders() {
    constexpr size_t streams = 12, rounds = 200;
    const GpuArray<uint32_t> words(streams);
    std::memset(words.at, 0, words.bytes());
    std::vector<std::thread> threads;
    std::atomic<size_t> failures = 0;
    for (size_t i = 0; i < streams; i++)
        threads.emplace_back([&, i] { // each passes a count on to the next
            qcclEmulatedStream_t stream = nullptr;
            qcclEmulatedStreamCreateNonBlocking(&stream);
            for (uint32_t round = 0; round < rounds; round++) {
                if (i > 0) qcclEmulatedStreamWaitValue32(stream, &words[i - 1], round + 1);
                qcclEmulatedStreamWriteValue32(stream, &words[i], round + 1);
            }
            if (qcclEmulatedStreamSynchronize(stream) != 0) failures++;
            if (std::atomic_ref(words[i]).load() != rounds) failures++;
            qcclEmulatedStreamDestroy(stream);
        });
    for (std::thread &thread : threads) thread.join();
    CHECK_EQ(failures.load(), 0U);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(each_thread_chooses_its_gpu),
        QTEST(memory_is_guarded),
        QTEST(attributes_know_every_kind_of_memory),
        QTEST(copies_wait_for_their_turn),
        QTEST(a_thread_has_a_stream_of_its_own),
        QTEST(events_are_where_they_were_recorded_last),
        QTEST(streams_write_and_wait_for_values),
        QTEST(functions_of_the_host_must_not_call_the_gpu),
        QTEST(a_kernel_runs_as_every_thread),
        QTEST(threads_of_a_block_meet_or_the_launch_fails),
        QTEST(to_free_waits_for_the_gpu),
        QTEST(memory_in_the_order_of_a_stream),
        QTEST(what_a_destroyed_stream_had_to_do_is_done),
        QTEST(failure_stays_and_spreads_by_events),
        QTEST(many_streams_keep_their_orders),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
