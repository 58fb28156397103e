// Tests emulated GPUs in several processes: one process opens memory of another, through the C API
// and through the library's module; forked children start anew; and every call may fail.
#include "emulated_kit.hpp"

#include <cstring>

using namespace qccl;
using namespace emulated_kit;
using namespace gpu_kit;

static void another_process_opens_memory() {
    const Ledger ledger;
    {
        const GpuArray<int> array(3000);
        std::memset(array.at, 0, array.bytes());
        qcclEmulatedIpcMemHandle_t handle;
        DO(IpcGetMemHandle(&handle, array.at + 1000)); // the handle leads to the whole allocation
        void *own = nullptr;
        REFUSED(InvalidValue, IpcOpenMemHandle(&own, &handle));
        in_child([&] {
            void *memory = nullptr, *again = nullptr;
            DO(IpcOpenMemHandle(&memory, &handle));
            DO(IpcOpenMemHandle(&again, &handle));
            CHECK(memory == again);
            qcclEmulatedPointerAttributes_t found;
            DO(PointerGetAttributes(&found, static_cast<int *>(memory) + 2999));
            CHECK_EQ(found.type, qcclEmulatedMemoryTypeDevice);
            CHECK_EQ(found.bytes, 3000 * sizeof(int));
            const StreamHandle stream;
            DO(MemsetAsync(memory, 0x11, 3000 * sizeof(int), stream));
            REFUSED(InvalidValue, MemsetAsync(memory, 0, 3001 * sizeof(int), stream));
            DO(StreamSynchronize(stream));
            REFUSED(InvalidValue, Free(memory));
            DO(IpcCloseMemHandle(memory));
            DO(IpcCloseMemHandle(memory));
            REFUSED(InvalidValue, IpcCloseMemHandle(memory));
            qcclEmulatedIpcMemHandle_t other;
            REFUSED(InvalidValue, IpcGetMemHandle(&other, memory));
        });
        CHECK_EQ(array[0], 0x11111111);
        CHECK_EQ(array[2999], 0x11111111);
        DO(DeviceSynchronize()); // checks the guards
    }
    ledger.check();
}

static void memory_that_is_gone_is_not_opened() {
    qcclEmulatedIpcMemHandle_t handle, garbage;
    std::memset(&garbage, 0x5A, sizeof garbage);
    {
        const GpuArray<int> array(10);
        DO(IpcGetMemHandle(&handle, array.at));
    }
    const GpuArray<int> another(10); // in the same file descriptor
    in_child([&] {
        void *memory = nullptr;
        REFUSED(InvalidValue, IpcOpenMemHandle(&memory, &handle));
        REFUSED(InvalidValue, IpcOpenMemHandle(&memory, &garbage));
    });
}

static void forked_children_begin_again_or_not_at_all() {
    const StreamHandle stream;
    BlockedStream blocked;
    blocked.hold(stream);
    Common<qcclEmulatedResult_t[2]> results;
    const pid_t child = fork();
    if (child == 0) {
        void *memory = nullptr;
        (*results)[0] = qcclEmulatedMalloc(&memory, 10);
        (*results)[1] = qcclEmulatedStreamSynchronize(stream);
        _exit(0);
    }
    waitpid(child, nullptr, 0);
    CHECK_EQ((*results)[0], qcclEmulatedErrorInitialization);
    CHECK_EQ((*results)[1], qcclEmulatedErrorInitialization);
    in_child([&] {
        CHECK_EQ(qcclEmulatedCountHeld(), 0U);
        CHECK_EQ(qcclEmulatedCountCalls(), 0U);
        REFUSED(InvalidHandle, StreamSynchronize(stream));
        DO(DeviceSynchronize()); // does not wait for the parent's work
    });
}

static void peers_are_asked_for() {
    int can = 0;
    DO(DeviceCanAccessPeer(&can, 0, 6));
    CHECK_EQ(can, 1);
    DO(DeviceCanAccessPeer(&can, 3, 3));
    CHECK_EQ(can, 0);
    DO(DeviceEnablePeerAccess(6));
    REFUSED(PeerAccessAlreadyEnabled, DeviceEnablePeerAccess(6));
    REFUSED(InvalidDevice, DeviceEnablePeerAccess(0));
    qcclEmulatedForbidPeers(1);
    DO(DeviceCanAccessPeer(&can, 0, 6));
    CHECK_EQ(can, 0);
    REFUSED(PeerAccessUnsupported, DeviceEnablePeerAccess(5));
    qcclEmulatedForbidPeers(0);
}

static void named_memory_is_mapped_by_other_gpus() {
    const Ledger ledger;
    {
        const auto gpu = open_gpu(2);
        const auto memory = gpu->pool_acquire(5000);
        CHECK_OK(memory);
        const auto name = gpu->name_memory(*memory + 1024, 500);
        CHECK_OK(name);
        CHECK_EQ(std::string(name->vendor.data(), name->vendor.size()), "emulated");
        CHECK_EQ(name->offset, 1024U);
        // In the same process the memory keeps its address, and mapping it lets other GPUs access
        // it.
        const auto near = open_gpu(3);
        const auto own = gpu->map(*name), others = near->map(*name);
        CHECK_OK(own);
        CHECK_OK(others);
        CHECK(*own == *memory + 1024 && *others == *own);
        float *const values = reinterpret_cast<float *>(*others);
        values[0] = 2;
        CHECK_OK(near->launch(nullptr, KernelId::fold_float, 1, sum_of(values, values, values, 1)));
        CHECK_OK(near->synchronize(nullptr));
        CHECK_EQ(values[0], 4.0F);
        near->unmap(*name, *others);
        gpu->unmap(*name, *own);
        for (const uint32_t number : {2U, 5U})
            in_child([&] {
                {
                    const auto reader = open_gpu(number), second = open_gpu(0);
                    const auto mapped = reader->map(*name), again = reader->map(*name),
                               beside = second->map(*name);
                    CHECK(mapped && again && beside);
                    CHECK(*mapped == *again);
                    std::memset(*mapped, static_cast<int>(number), 500);
                    const auto place = reader->find(*mapped);
                    CHECK_OK(place);
                    CHECK(place->kind == GpuPlace::Kind::gpu);
                    CHECK_EQ(place->number, 2U);
                    reader->unmap(*name, *mapped);
                    second->unmap(*name, *beside);
                    CHECK_OK(reader->find(*again));
                    std::memset(*again, static_cast<int>(number), 100); // still mapped
                    reader->unmap(*name, *again);
                }
                CHECK_EQ(qcclEmulatedCountHeld(), 0U);
            });
        CHECK((*memory)[1023] == std::byte{0} && (*memory)[1524] == std::byte{0});
        CHECK((*memory)[1024] == std::byte{5} && (*memory)[1523] == std::byte{5});
        gpu->pool_release(*memory, 5000);
    }
    ledger.check(1);
}

static void memory_out_of_reach_is_refused() {
    const auto gpu = open_gpu(2), other = open_gpu(4);
    const auto memory = gpu->pool_acquire(100);
    CHECK_OK(memory);
    const auto name = gpu->name_memory(*memory, 100);
    CHECK_OK(name);
    const auto text_of = [](const auto &result) {
        CHECK(!result);
        return std::string(result.error().text);
    };
    qcclEmulatedForbidPeers(1);
    CHECK_EQ(text_of(other->map(*name)), "emulated:4: cannot reach the memory of emulated:2");
    CHECK_OK(gpu->map(*name));
    in_child([&] {
        qcclEmulatedForbidPeers(1);
        CHECK(!open_gpu(4)->map(*name));
        const auto same = open_gpu(2);
        const auto mapped = same->map(*name);
        CHECK_OK(mapped);
        same->unmap(*name, *mapped);
    });
    qcclEmulatedForbidPeers(0);
    GpuMemoryName strange = *name;
    strange.vendor = {'c', 'u', 'd', 'a'};
    CHECK_EQ(text_of(gpu->map(strange)), "emulated:2: cannot reach memory of another make");
    strange = *name;
    strange.gpu[0] ^= std::byte{1};
    CHECK_EQ(text_of(gpu->map(strange)),
             "emulated:2: cannot reach memory of a GPU that this process does not see: "
             "CUDA_VISIBLE_DEVICES or the like, a container, or MIG hides it");
    const auto alone = gpu->allocate_private(100);
    CHECK_OK(alone);
    CHECK(!gpu->name_memory(*alone, 100));
    gpu->free_private(*alone);
    gpu->pool_release(*memory, 100);
}

// Uses every function of a GPU once and returns the first error.
static Done do_everything(const GpuMemoryName &name) {
    Error error;
    const std::unique_ptr<Gpu> gpu(qccl_gpu_module()->open(1, &error));
    if (!gpu) return error;
    std::vector<std::byte> mine(64);
    std::byte *named = nullptr, *alone = nullptr, *pinned = nullptr, *mapped = nullptr;
    GpuStream stream = nullptr;
    GpuEventHandle mark = nullptr;
    uint32_t *blocked = nullptr;
    bool is_pinned = false;
    const auto work = [&]() -> Done {
        QCCL_TRY(named, gpu->pool_acquire(64));
        QCCL_TRY(alone, gpu->allocate_private(64));
        QCCL_TRY(pinned, gpu->acquire_pinned(64));
        QCCL_TRY(gpu->pin(mine.data(), mine.size()));
        is_pinned = true;
        QCCL_TRY(const GpuMemoryName own, gpu->name_memory(named, 64));
        QCCL_TRY(gpu->map(own));
        QCCL_TRY(mapped, gpu->map(name));
        QCCL_TRY(stream, gpu->create_stream(qccl::StreamPriority::usual));
        QCCL_TRY(mark, gpu->create_event());
        QCCL_TRY(blocked, gpu->create_stream_wait());
        *blocked = 1;
        QCCL_TRY(gpu->has_greatest_priority(stream));
        QCCL_TRY(gpu->capture_of(stream));
        QCCL_TRY(gpu->await_stream_wait(stream, blocked, 1));
        QCCL_TRY(gpu->copy(stream, named, pinned, 64));
        QCCL_TRY(gpu->launch(stream, KernelId::fold_float, 1, Batch{}));
        QCCL_TRY(gpu->call_host(
            stream, [](void *) {}, nullptr));
        QCCL_TRY(gpu->record_event(mark, stream));
        QCCL_TRY(gpu->await_event(stream, mark));
        QCCL_TRY(gpu->synchronize(stream));
        return outcome(gpu->has_passed(mark));
    };
    const Done done = work();
    if (mapped) gpu->unmap(name, mapped);
    if (blocked) gpu->destroy_stream_wait(blocked);
    if (mark) gpu->destroy_event(mark);
    if (stream) gpu->destroy_stream(stream);
    if (is_pinned) gpu->unpin(mine.data());
    if (pinned) gpu->release_pinned(pinned, 64);
    if (alone) gpu->free_private(alone);
    if (named) gpu->pool_release(named, 64);
    return done;
}

static void every_call_may_fail() {
    const auto gpu = open_gpu(1);
    const auto memory = gpu->pool_acquire(64);
    CHECK_OK(memory);
    const auto name = gpu->name_memory(*memory, 64);
    CHECK_OK(name);
    in_child([&] {
        DO(SetDevice(6));
        CHECK_OK(do_everything(*name)); // fills the caches about GPUs
        uint64_t calls = qcclEmulatedCountCalls();
        CHECK_OK(do_everything(*name));
        calls = qcclEmulatedCountCalls() - calls;
        CHECK(calls > 20);
        for (uint64_t n = 1; n <= calls; n++) {
            qcclEmulatedFailCall(n, qcclEmulatedErrorLaunchFailure);
            const Done done = do_everything(*name);
            if (done) throw qtest::Failure{"call " + std::to_string(n) + " may fail unnoticed"};
            CHECK(done.error().code == Code::unhandled_device_error);
            CHECK(std::strstr(done.error().text, "emulated:1: cannot "));
            CHECK(std::strstr(done.error().text, ": this call was to fail"));
            DO(SetDevice(1));
            DO(DeviceSynchronize()); // freed memory may still be on its way back
            DO(SetDevice(6));
            CHECK(qcclEmulatedCountHeld() <= 3); // named and pinned memory, a stream wait: pooled
        }
        int device = -1;
        DO(GetDevice(&device));
        CHECK_EQ(device, 6);
        CHECK_OK(do_everything(*name));
    });
    gpu->pool_release(*memory, 64);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(another_process_opens_memory),
        QTEST(memory_that_is_gone_is_not_opened),
        QTEST(forked_children_begin_again_or_not_at_all),
        QTEST(peers_are_asked_for),
        QTEST(named_memory_is_mapped_by_other_gpus),
        QTEST(memory_out_of_reach_is_refused),
        QTEST(every_call_may_fail),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
