// Tests Gpu, the library's interface to a GPU (lib/device/gpu), as kernels/runtime/module
// implements it, on the emulated module: memory of each kind, streams, events, stream waits,
// launches, memory names for other processes, and failures.
#include "gpu_kit.hpp"

#include "device/batch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <numeric>

using namespace qccl;
using namespace gpu_kit;

namespace {

// Three vectors of `n` floats on a GPU: one for the sum, filled with zeros, and two that hold 1, 2,
// 3 and so on.
struct Vectors {
    Vectors(Gpu &owner, size_t n) : gpu(owner), count(n) {
        std::vector<float> values(count);
        std::iota(values.begin(), values.end(), 1.0F);
        for (float *&vector : at) {
            const auto memory = gpu.pool_acquire(bytes());
            CHECK_OK(memory);
            vector = reinterpret_cast<float *>(*memory);
            std::memcpy(vector, values.data(), bytes());
        }
        std::memset(at[0], 0, bytes());
    }
    ~Vectors() {
        for (float *vector : at) gpu.pool_release(reinterpret_cast<std::byte *>(vector), bytes());
    }
    size_t bytes() const { return count * sizeof(float); }
    Batch batch() const { return sum_of(at[0], at[1], at[2], count); }
    void check_sum() const {
        for (size_t i = 0; i < count; i++) CHECK_EQ(at[0][i], 2.0F * static_cast<float>(i + 1));
    }

    Gpu &gpu;
    size_t count;
    float *at[3] = {};
};

// A stream that is destroyed with this object.
struct Stream {
    explicit Stream(Gpu &owner) : gpu(owner) {
        const auto made = gpu.create_stream(StreamPriority::usual);
        CHECK_OK(made);
        handle = *made;
    }
    ~Stream() { gpu.destroy_stream(handle); }
    Gpu &gpu;
    GpuStream handle;
};

bool is_zero(const std::byte *memory, size_t bytes) {
    return std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{}; });
}

} // namespace

static void the_module_knows_its_gpus() {
    const GpuModule &module = *qccl_gpu_module();
    char why[100] = "";
    CHECK_EQ(module.abi, GpuModule::current_abi);
    CHECK_EQ(std::string(module.vendor), "emulated");
    CHECK_EQ(module.count(why, sizeof why), 8U);
    for (const uint32_t number : {0U, 1U, 6U}) {
        const auto gpu = open_gpu(number);
        CHECK_EQ(gpu->traits().name, "emulated:" + std::to_string(number));
        CHECK_EQ(gpu->traits().lanes, number % 2 == 0 ? 32U : 64U);
        CHECK(gpu->traits().has_stream_waits && gpu->traits().can_capture &&
              gpu->traits().has_gpu_barrier);
        CHECK(!gpu->traits().model.empty());
    }
    qcclEmulatedFailCall(1, qcclEmulatedErrorInitialization);
    CHECK_EQ(module.count(why, sizeof why), 0U);
    CHECK_EQ(std::string(why), "this call was to fail");
    Error error;
    CHECK(!module.open(8, &error));
    CHECK_EQ(std::string(error.text), "emulated:8: cannot describe itself: invalid device ordinal");
}

static void streams_of_the_library_have_the_greatest_priority() {
    const auto gpu = open_gpu(0);
    const auto usual = gpu->create_stream(StreamPriority::usual);
    const auto greatest = gpu->create_stream(StreamPriority::greatest);
    CHECK(usual && greatest);
    for (const auto &[stream, expected] :
         {std::pair{*usual, false}, std::pair{*greatest, true}, std::pair{GpuStream{}, false}}) {
        const auto is_greatest = gpu->has_greatest_priority(stream);
        CHECK_OK(is_greatest);
        CHECK_EQ(*is_greatest, expected);
    }
    gpu->destroy_stream(*usual);
    gpu->destroy_stream(*greatest);
    CHECK(!gpu->has_greatest_priority(*usual));
}

static void memory_of_each_kind_is_zeroed_and_found() {
    const auto gpu = open_gpu(3);
    const Ledger ledger;
    for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{100000}}) {
        const auto named = gpu->pool_acquire(bytes), alone = gpu->allocate_private(bytes),
                   pinned = gpu->acquire_pinned(bytes);
        CHECK(named && alone && pinned);
        for (std::byte *const memory : {*named, *alone, *pinned}) {
            CHECK(is_zero(memory, bytes));
            CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0U);
            const auto place = gpu->find(memory + bytes - 1);
            CHECK_OK(place);
            CHECK(place->kind ==
                  (memory == *pinned ? GpuPlace::Kind::pinned : GpuPlace::Kind::gpu));
            CHECK_EQ(place->number, memory == *pinned ? 0U : 3U);
        }
        gpu->pool_release(*named, bytes);
        gpu->free_private(*alone);
        gpu->release_pinned(*pinned, bytes);
    }
    int local = 0;
    const auto place = gpu->find(&local);
    CHECK_OK(place);
    CHECK(place->kind == GpuPlace::Kind::pageable);
    CHECK_EQ(qcclEmulatedSetDevice(3), 0);
    CHECK_EQ(qcclEmulatedDeviceSynchronize(), 0);
    CHECK_EQ(qcclEmulatedSetDevice(0), 0);
    ledger.check(6); // named and pinned
}

static void memory_may_be_short() {
    const auto gpu = open_gpu(0);
    qcclEmulatedLimitMemory(10000);
    const auto fits = gpu->pool_acquire(8000);
    CHECK_OK(fits);
    const auto refused = gpu->pool_acquire(4000);
    CHECK(!refused);
    CHECK(refused.error().code == Code::unhandled_device_error);
    CHECK_EQ(std::string(refused.error().text),
             "emulated:0: cannot allocate memory: out of memory");
    CHECK(!gpu->allocate_private(4000));
    CHECK_OK(open_gpu(1)->allocate_private(4000)); // another GPU's; never freed
    gpu->pool_release(*fits, 8000);
    const auto again = gpu->pool_acquire(8000);
    CHECK_OK(again);
    gpu->pool_release(*again, 8000);
    qcclEmulatedLimitMemory(SIZE_MAX);
}

static void kernels_copies_and_host_calls_go_in_order() {
    for (const uint32_t number : {0U, 1U}) {
        const auto gpu = open_gpu(number);
        const Ledger ledger;
        {
            Vectors vectors(*gpu, 5000);
            const Stream stream(*gpu);
            std::vector<float> result(vectors.count);
            CHECK_OK(gpu->launch(stream.handle, KernelId::fold_float, 2, vectors.batch()));
            CHECK_OK(gpu->copy(stream.handle, result.data(), vectors.at[0], vectors.bytes()));
            struct Seen {
                const std::vector<float> *result;
                float last = 0;
            } seen{&result};
            CHECK_OK(gpu->call_host(
                stream.handle,
                [](void *context) {
                    auto *const self = static_cast<Seen *>(context);
                    self->last = self->result->back();
                },
                &seen));
            CHECK_OK(gpu->synchronize(stream.handle));
            vectors.check_sum();
            CHECK_EQ(seen.last, 10000.0F);
        }
        ledger.check(3); // the vectors
    }
}

static void a_thread_keeps_the_gpu_of_its_choice() {
    const auto gpu = open_gpu(5);
    CHECK_EQ(qcclEmulatedSetDevice(2), 0);
    const auto memory = gpu->pool_acquire(100);
    CHECK_OK(memory);
    const Stream stream(*gpu);
    CHECK_OK(gpu->synchronize(stream.handle));
    gpu->pool_release(*memory, 100);
    int device = -1;
    CHECK_EQ(qcclEmulatedGetDevice(&device), 0);
    CHECK_EQ(device, 2);
    CHECK_EQ(qcclEmulatedSetDevice(0), 0);
}

// Released memory serves the next request of the same size on the same GPU, zeroed again, and no
// other request.
static void pooled_memory_serves_the_next() {
    const auto gpu = open_gpu(2), other = open_gpu(3);
    const auto first = gpu->pool_acquire(5000);
    CHECK_OK(first);
    std::memset(*first, 7, 5000);
    const auto beside = gpu->pool_acquire(5000);
    CHECK_OK(beside);
    CHECK(*beside != *first);
    gpu->pool_release(*first, 5000);
    const auto elsewhere = other->pool_acquire(5000), larger = gpu->pool_acquire(5001);
    CHECK(elsewhere && larger);
    CHECK(*elsewhere != *first && *larger != *first);
    const auto again = gpu->pool_acquire(5000);
    CHECK_OK(again);
    CHECK(*again == *first && is_zero(*again, 5000));
}

static void marks_tell_when_a_stream_has_come_by() {
    const auto gpu = open_gpu(0);
    const Ledger ledger;
    {
        const Stream stream(*gpu);
        const auto mark = gpu->create_event();
        const auto gate = gpu->create_stream_wait();
        CHECK(mark && gate);
        const auto passed = [&] {
            const auto is = gpu->has_passed(*mark);
            CHECK_OK(is);
            return *is;
        };
        CHECK(passed()); // nothing to wait for yet
        std::atomic<bool> is_through = false;
        const auto tell = [](void *flag) { *static_cast<std::atomic<bool> *>(flag) = true; };
        CHECK_OK(gpu->await_stream_wait(stream.handle, *gate, 1));
        CHECK_OK(gpu->call_host(stream.handle, tell, &is_through));
        CHECK_OK(gpu->record_event(*mark, stream.handle));
        nap();
        CHECK(!passed());
        CHECK(!is_through);
        std::atomic_ref(**gate).store(1);
        CHECK_OK(gpu->synchronize(stream.handle));
        CHECK(is_through);
        CHECK(passed());
        gpu->destroy_event(*mark);
        gpu->destroy_stream_wait(*gate);
    }
    ledger.check(1); // a stream wait
}

static void gates_count_beyond_zero() {
    const auto gpu = open_gpu(0);
    const Stream stream(*gpu);
    const auto gate = gpu->create_stream_wait();
    CHECK_OK(gate);
    CHECK_EQ(**gate, 0U);
    std::atomic_ref word(**gate);
    const auto mark = gpu->create_event();
    CHECK_OK(mark);
    struct Case {
        uint32_t word, value;
        bool opens;
    };
    for (const Case c :
         {Case{5, 5, true}, Case{6, 5, true}, Case{4, 5, false}, Case{0, 0xFFFFFFFF, true},
          Case{0xFFFFFFFF, 0, false}, Case{0x7FFFFFFF, 0, true}}) {
        word.store(c.word);
        CHECK_OK(gpu->await_stream_wait(stream.handle, *gate, c.value));
        CHECK_OK(gpu->record_event(*mark, stream.handle));
        if (!c.opens) {
            nap();
            const auto is = gpu->has_passed(*mark);
            CHECK_OK(is);
            CHECK(!*is);
            word.store(c.value);
        }
        CHECK_OK(gpu->synchronize(stream.handle));
    }
    gpu->destroy_event(*mark);
    gpu->destroy_stream_wait(*gate);
}

static void private_memory_waits_for_nobody() {
    const auto gpu = open_gpu(0);
    const Stream busy(*gpu);
    const auto gate = gpu->create_stream_wait();
    CHECK_OK(gate);
    CHECK_OK(gpu->await_stream_wait(busy.handle, *gate, 1));
    CHECK_OK(gpu->await_stream_wait(nullptr, *gate, 1)); // the default stream as well
    const auto memory = gpu->allocate_private(1000);
    CHECK_OK(memory);
    gpu->free_private(*memory);
    std::atomic_ref(**gate).store(1);
    CHECK_OK(gpu->synchronize(nullptr));
    CHECK_OK(gpu->synchronize(busy.handle));
    gpu->destroy_stream_wait(*gate);
}

// Unpinning waits for the GPU; meanwhile other threads can pin memory.
static void memory_is_pinned_while_a_stream_waits() {
    const auto gpu = open_gpu(0);
    const Stream busy(*gpu);
    std::vector<std::byte> first(10000), second(10000);
    CHECK_OK(gpu->pin(first.data(), first.size()));
    const auto gate = gpu->create_stream_wait();
    CHECK_OK(gate);
    CHECK_OK(gpu->await_stream_wait(busy.handle, *gate, 1));
    const auto unpinning = std::async(std::launch::async, [&] { gpu->unpin(first.data()); });
    nap();
    auto pinning =
        std::async(std::launch::async, [&] { return gpu->pin(second.data(), second.size()); });
    const bool is_pinned = pinning.wait_for(std::chrono::seconds(10)) == std::future_status::ready;
    const bool is_waiting =
        unpinning.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
    std::atomic_ref(**gate).store(1);
    CHECK(is_pinned && is_waiting);
    CHECK_OK(pinning.get());
    unpinning.wait();
    gpu->unpin(second.data());
    gpu->destroy_stream_wait(*gate);
}

static void a_failed_kernel_fails_its_stream() {
    const auto gpu = open_gpu(0);
    const Stream stream(*gpu), other(*gpu), third(*gpu);
    std::vector<float> pageable(100);
    const auto mark = gpu->create_event();
    CHECK_OK(mark);
    static bool is_called = false;
    CHECK_OK(gpu->launch(stream.handle, KernelId::fold_float, 1,
                         sum_of(pageable.data(), pageable.data(), pageable.data(), 100)));
    (void)gpu->call_host(
        stream.handle, [](void *) { is_called = true; }, nullptr);
    const Done failed = gpu->synchronize(stream.handle);
    CHECK(!failed);
    CHECK_EQ(std::string(failed.error().text),
             "emulated:0: cannot wait for a stream: a kernel touches memory that GPU 0 does not "
             "reach");
    CHECK(!is_called);
    CHECK(!gpu->synchronize(stream.handle)); // permanently
    CHECK(!gpu->record_event(*mark, stream.handle));
    CHECK_OK(gpu->synchronize(third.handle));
    gpu->destroy_event(*mark);

    const Ledger ledger;
    qcclEmulatedFailWork(1, qcclEmulatedErrorLaunchFailure); // the clearing
    const auto memory = gpu->pool_acquire(100);
    CHECK(!memory);
    CHECK_EQ(std::string(memory.error().text),
             "emulated:0: cannot clear memory: this work was to fail");
    ledger.check(1); // kept for the next request
}

static void what_is_pinned_is_counted() {
    const auto gpu = open_gpu(0), second = open_gpu(1);
    const Ledger ledger;
    std::vector<std::byte> memory(10000);
    const auto kind = [&] {
        const auto place = gpu->find(memory.data() + 5000);
        CHECK_OK(place);
        return place->kind;
    };
    CHECK_OK(gpu->pin(memory.data(), memory.size()));
    CHECK_OK(second->pin(memory.data(), memory.size()));
    CHECK_OK(gpu->pin(memory.data(), 100));
    CHECK(kind() == GpuPlace::Kind::pinned);
    const Done longer = gpu->pin(memory.data(), memory.size() + 1);
    CHECK(!longer);
    CHECK(longer.error().code == Code::invalid_usage);
    gpu->unpin(memory.data());
    gpu->unpin(memory.data());
    CHECK(kind() == GpuPlace::Kind::pinned);
    second->unpin(memory.data());
    CHECK(kind() == GpuPlace::Kind::pageable);
    // Memory that the program has pinned stays pinned.
    CHECK_EQ(qcclEmulatedHostRegister(memory.data(), memory.size()), 0);
    for (const size_t offset : {size_t{0}, size_t{1000}}) {
        CHECK_OK(gpu->pin(memory.data() + offset, 1000));
        gpu->unpin(memory.data() + offset);
    }
    CHECK(kind() == GpuPlace::Kind::pinned);
    CHECK_EQ(qcclEmulatedHostUnregister(memory.data()), 0);
    ledger.check();
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_module_knows_its_gpus),
        QTEST(streams_of_the_library_have_the_greatest_priority),
        QTEST(memory_of_each_kind_is_zeroed_and_found),
        QTEST(memory_may_be_short),
        QTEST(kernels_copies_and_host_calls_go_in_order),
        QTEST(a_thread_keeps_the_gpu_of_its_choice),
        QTEST(pooled_memory_serves_the_next),
        QTEST(marks_tell_when_a_stream_has_come_by),
        QTEST(gates_count_beyond_zero),
        QTEST(private_memory_waits_for_nobody),
        QTEST(memory_is_pinned_while_a_stream_waits),
        QTEST(a_failed_kernel_fails_its_stream),
        QTEST(what_is_pinned_is_counted),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
