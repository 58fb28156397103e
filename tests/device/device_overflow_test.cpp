// Tests calls on streams of emulated GPUs that need more memory than QCCL_ARENA: the GPUs use host
// memory for them, and while a stream waits for a call, the call does not wait for that GPU.
#include "device_ranks.hpp"

#include <chrono>
#include <cstdlib>
#include <list>

using namespace qtest;
using namespace std::chrono_literals;

namespace {

// The memory grows with the second call and serves the third.
constexpr size_t counts[] = {400000, 600000, 400000};

qcclResult_t sum_in_place(float *values, size_t count, qcclComm_t comm, qcclStream_t stream) {
    const CodecHandle codec(*parse_codec("topk:ratio=1"), 0);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.codec = codec.get();
    config.algorithm = "direct";
    return qcclAllReduceConfig(values, values, count, qcclFloat32, qcclSum, comm, stream, &config);
}

void sum_in_a_stream(const GpuRank &rank, float expected) {
    // The buffers are freed at the end, because freeing waits for the whole GPU.
    std::list<GpuFloats> buffers;
    for (const size_t count : counts) buffers.emplace_back(count, 1.0F);
    for (GpuFloats &values : buffers) {
        for (int i = 0; i < 2; i++)
            check(sum_in_place(values.data(), values.count(), rank.comm, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK_EQ(async_error(rank.comm), qcclSuccess);
        CHECK(values.are(expected));
    }
}

void sum_on_the_host(qcclComm_t comm, float expected) {
    for (const size_t count : counts) {
        std::vector<float> values(count, 1);
        for (int i = 0; i < 2; i++) check(sum_in_place(values.data(), count, comm, nullptr));
        CHECK(std::ranges::all_of(values, [=](float value) { return value == expected; }));
    }
}

void sum(GpuRank &rank, size_t ranks, bool is_on_host) {
    const auto expected = static_cast<float>(ranks * ranks);
    if (is_on_host) return sum_on_the_host(rank.comm, expected);
    CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
    CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&rank.stream));
    sum_in_a_stream(rank, expected);
    CHECK_EMULATED(qcclEmulatedStreamDestroy(rank.stream));
}

// The bodies run in separate processes, because a call that waits for itself does not even end with
// its communicator.
class Bodies {
public:
    template <class Body> void start(Body body) {
        CHECK(processes_.start([&] {
            qcclEmulatedBeginAgain();
            try {
                body();
            } catch (const Failure &failure) {
                std::fprintf(stderr, "%s\n", failure.text.c_str());
                _exit(1);
            }
            _exit(0);
        }));
        count_++;
    }
    void check_all() const {
        const auto may_last = [start = std::chrono::steady_clock::now()] {
            return std::chrono::steady_clock::now() - start < 60s;
        };
        for (int i = 0; i < count_; i++) {
            const auto status = processes_.reap(i, may_last);
            CHECK(status); // otherwise the call waits for itself
            CHECK(WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
        }
    }

private:
    killable::Processes processes_;
    int count_ = 0;
};

void check_threads(const std::vector<const char *> &devices) {
    Bodies bodies;
    bodies.start([&] {
        std::vector<qcclComm_t> comms(devices.size());
        check(qcclCommInitAll(comms.data(), static_cast<int>(devices.size()), devices.data()));
        std::vector<std::thread> threads;
        for (size_t i = 0; i < devices.size(); i++)
            threads.emplace_back([&, i] {
                const auto gpu = gpu_number(devices[i]);
                GpuRank rank{.gpu = gpu.value_or(0), .comm = comms[i], .stream = nullptr};
                try {
                    sum(rank, devices.size(), !gpu);
                } catch (const Failure &failure) {
                    std::fprintf(stderr, "rank %zu: %s\n", i, failure.text.c_str());
                    _exit(1);
                }
            });
        for (std::thread &thread : threads) thread.join();
        for (const qcclComm_t comm : comms) check(qcclCommDestroy(comm));
    });
    bodies.check_all();
}

void no_call_of_a_thread_waits_for_its_own_stream() {
    check_threads({"emulated:0", "emulated:1"});
    check_threads({"emulated:0", "emulated:0"});
    check_threads({"emulated:0", "host"});
    check_threads({"emulated:0", "host", "emulated:0"});
}

void check_processes(const std::vector<const char *> &devices) {
    LateId id;
    Bodies bodies;
    for (size_t i = 0; i < devices.size(); i++)
        bodies.start([&, i] {
            qcclConfig_t config = QCCL_CONFIG_INIT;
            config.device = devices[i];
            const auto gpu = gpu_number(devices[i]);
            GpuRank rank{.gpu = gpu.value_or(0), .comm = nullptr, .stream = nullptr};
            const auto size = static_cast<int>(devices.size());
            check(qcclCommInitRankConfig(&rank.comm, size, &id.await(), static_cast<int>(i),
                                         &config));
            sum(rank, devices.size(), !gpu);
            check(qcclCommDestroy(rank.comm));
        });
    id.make();
    bodies.check_all();
}

void nor_does_one_of_a_process() {
    check_processes({"emulated:0", "emulated:1"});
    check_processes({"emulated:0", "host"});
}

} // namespace

int main() {
    setenv("QCCL_ARENA", "1M", 1);
    const CMUnitTest tests[] = {
        QTEST(no_call_of_a_thread_waits_for_its_own_stream),
        QTEST(nor_does_one_of_a_process),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
