// Tests calls on streams of emulated GPUs: a call waits for the stream's earlier work and holds up
// its later work, and a call that fails lets every stream go on.
#include "device_ranks.hpp"

#include <atomic>
#include <chrono>
#include <functional>

using namespace qtest;
using namespace std::chrono_literals;

namespace {

const std::vector<const char *> two{"emulated:0", "emulated:1"};

// Holds a stream until it is opened.
class Latch {
public:
    static void hold(void *latch) {
        auto *const self = static_cast<Latch *>(latch);
        self->has_come_ = true;
        while (!self->is_open_) std::this_thread::sleep_for(1ms);
    }
    void await_arrival() const {
        while (!has_come_) std::this_thread::sleep_for(1ms);
    }
    void open() { is_open_ = true; }

private:
    std::atomic<bool> has_come_{false}, is_open_{false};
};

void wait_a_while(void *) { std::this_thread::sleep_for(30ms); }

// The stream makes the input before the call, and reads the result after it.
void calls_keep_their_place_in_the_stream() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(5000, 0), ones(5000, 1), result(5000, 0);
        const size_t bytes = values.count() * sizeof(float);
        CHECK_EMULATED(qcclEmulatedLaunchHostFunc(rank.stream, wait_a_while, nullptr));
        CHECK_EMULATED(qcclEmulatedMemcpyAsync(values.data(), ones.data(), bytes, rank.stream));
        check(all_reduce(values, rank, rank.stream));
        check(all_reduce(values, rank, rank.stream));
        CHECK_EMULATED(qcclEmulatedMemcpyAsync(result.data(), values.data(), bytes, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(result.are(4));
        CHECK_EQ(async_error(rank.comm), qcclSuccess);
    });
}

void the_call_returns_before_the_stream_comes_to_it() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(100, 1);
        Latch latch;
        CHECK_EMULATED(qcclEmulatedLaunchHostFunc(rank.stream, Latch::hold, &latch));
        check(all_reduce(values, rank, rank.stream));
        CHECK_EQ(async_error(rank.comm), qcclInProgress);
        CHECK(values.are(1));
        latch.open();
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(2));
    });
}

// Small calls: GPUs whose ranks come together synchronize by themselves, and the host waits for a
// late rank. What a rank has observed of earlier calls differs from rank to rank.
void ranks_may_come_to_small_calls_early_or_late() {
    GpuRanks ranks({"emulated:0", "emulated:1", "emulated:2"});
    ranks.on_each([](size_t number, GpuRank &rank) {
        GpuFloats values(100, 1);
        qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
        float expected = 1;
        for (uint64_t i = 0; i < 60; i++) {
            config.algorithm = i % 3 == 0 ? "oneshot" : "direct"; // one exchange and two
            const uint64_t draw = splitmix64(i * 3 + number);
            if (draw % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(draw % 40));
            if (i % 15 == 0) {
                values.fill(1);
                expected = 1;
            }
            check(
                all_reduce(values, rank, draw % 2 == 0 ? QCCL_STREAM_SYNC : rank.stream, &config));
            CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
            expected *= 3;
            CHECK(values.are(expected));
        }
    });
}

void the_default_stream_of_each_gpu() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        GpuFloats values(1000, 3);
        check(all_reduce(values, rank, nullptr));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(nullptr));
        CHECK(values.are(6));
        check(all_reduce(values, rank, qcclEmulatedStreamPerThread));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(qcclEmulatedStreamPerThread));
        CHECK(values.are(12));
    });
}

// Calls on several streams run in the order in which they were made.
void calls_on_several_streams_keep_their_order() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t, GpuRank &rank) {
        qcclEmulatedStream_t other = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&other));
        GpuFloats values(1000, 1);
        for (int i = 0; i < 5; i++) {
            check(all_reduce(values, rank, rank.stream));
            check(all_reduce(values, rank, other));
        }
        check(all_reduce(values, rank, QCCL_STREAM_SYNC));
        CHECK(values.are(2048));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(other));
        CHECK_EMULATED(qcclEmulatedStreamDestroy(other));
    });
}

// After the refusal nothing has happened, and a call on the right stream succeeds.
void streams_of_another_gpu_are_refused() {
    GpuRanks ranks(two);
    ranks.on_each([&](size_t number, GpuRank &rank) {
        GpuFloats values(10, 1);
        CHECK_EQ(all_reduce(values, rank, ranks[1 - number].stream), qcclInvalidArgument);
        CHECK_EQ(async_error(rank.comm), qcclSuccess);
        qcclStream_t of_host = nullptr;
        check(qcclStreamCreate(&of_host));
        CHECK_EQ(all_reduce(values, rank, of_host), qcclInvalidArgument);
        const std::string said = qcclGetLastError(nullptr);
        CHECK(said.find("one of qcclStreamCreate") != std::string::npos);
        check(qcclStreamDestroy(of_host));
        check(all_reduce(values, rank, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(2));
    });
}

void buffers_of_another_kind_are_refused_by_name() {
    GpuRanks ranks(two);
    ranks.on_each([](size_t number, GpuRank &rank) {
        std::vector<float> host(10);
        GpuFloats values(10, 1);
        CHECK_EQ(qcclAllReduce(values.data(), host.data(), 10, qcclFloat32, qcclSum, rank.comm,
                               rank.stream),
                 qcclInvalidArgument);
        const std::string said = qcclGetLastError(rank.comm);
        CHECK(said.starts_with("recv is 0x"));
        CHECK(said.ends_with(", memory of the host, but the communicator's device is emulated:" +
                             std::to_string(number)));
        CHECK_EMULATED(qcclEmulatedSetDevice(3));
        GpuFloats others(10, 1);
        CHECK_EQ(all_reduce(others, rank, rank.stream), qcclInvalidArgument);
        CHECK(std::string(qcclGetLastError(rank.comm)).find("memory of another GPU") !=
              std::string::npos);
        CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
        CHECK_EQ(qcclAllReduce(values.data(), values.data(), size_t{1} << 20, qcclFloat32, qcclSum,
                               rank.comm, rank.stream),
                 qcclInvalidArgument);
        CHECK(std::string(qcclGetLastError(rank.comm)).find("has less memory than its 4194304") !=
              std::string::npos);
        check(all_reduce(values, rank, QCCL_STREAM_SYNC));
        CHECK(values.are(2));
    });
}

// ---- Failures

void a_rank_that_does_not_come_lets_the_stream_go_on() {
    GpuRanks ranks(two);
    GpuRank &rank = ranks[0];
    CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
    GpuFloats values(1000, 1);
    qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
    config.timeout = 0.3;
    check(all_reduce(values, rank, rank.stream, &config));
    CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
    CHECK_EQ(async_error(rank.comm), qcclTimeout);
    CHECK(std::string(qcclGetLastError(rank.comm)).find("rank 1") != std::string::npos);
    CHECK_EQ(all_reduce(values, rank, rank.stream), qcclTimeout);
}

void an_abort_lets_the_stream_go_on() {
    GpuRanks ranks(two);
    for (const bool aborts : {false, true}) {
        GpuRank &rank = ranks[aborts ? 1 : 0];
        CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
        GpuFloats values(1000, 1);
        if (async_error(rank.comm) == qcclSuccess) check(all_reduce(values, rank, rank.stream));
        std::this_thread::sleep_for(20ms);
        if (aborts) {
            check(qcclCommAbort(rank.comm));
            rank.comm = nullptr;
        } else {
            check(qcclCommRevoke(rank.comm));
        }
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
    }
}

// The earlier work fails when the stream reaches it.
void a_stream_that_fails_fails_the_call_on_every_rank() {
    GpuRanks ranks(two);
    GpuRank &rank = ranks[0];
    CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
    GpuFloats values(1000, 1);
    Latch latch;
    CHECK_EMULATED(qcclEmulatedLaunchHostFunc(rank.stream, Latch::hold, &latch));
    latch.await_arrival();
    qcclEmulatedFailWork(1, qcclEmulatedErrorLaunchFailure);
    CHECK_EMULATED(qcclEmulatedMemcpyAsync(values.data(), values.data() + 500, 100, rank.stream));
    check(all_reduce(values, rank, rank.stream));
    latch.open();
    CHECK_EQ(qcclEmulatedStreamSynchronize(rank.stream), qcclEmulatedErrorLaunchFailure);
    while (async_error(rank.comm) == qcclInProgress) std::this_thread::sleep_for(1ms);
    CHECK_EQ(async_error(rank.comm), qcclUnhandledDeviceError);
    GpuRank &other = ranks[1];
    CHECK_EMULATED(qcclEmulatedSetDevice(other.gpu));
    GpuFloats others(1000, 1);
    (void)all_reduce(others, other, other.stream);
    CHECK_EMULATED(qcclEmulatedStreamSynchronize(other.stream));
    CHECK_EQ(async_error(other.comm), qcclUnhandledDeviceError);
}

void a_dead_process_lets_the_streams_of_others_go_on() {
    const killable::Reports<int> reports(2);
    CHECK(reports.are_there());
    LateId id;
    killable::Processes processes;
    for (int rank = 0; rank < 2; rank++)
        CHECK(processes.start([&, rank] {
            qcclEmulatedBeginAgain();
            qcclConfig_t config = QCCL_CONFIG_INIT;
            config.device = rank == 0 ? "emulated:0" : "emulated:1";
            GpuRank own{.gpu = rank, .comm = nullptr, .stream = nullptr};
            if (qcclCommInitRankConfig(&own.comm, 2, &id.await(), rank, &config) != qcclSuccess)
                _exit(1);
            (void)qcclEmulatedSetDevice(rank);
            (void)qcclEmulatedStreamCreateNonBlocking(&own.stream);
            GpuFloats values(1 << 20, 1);
            for (int i = 0; rank == 0 || i < 3; i++) {
                if (all_reduce(values, own, own.stream) != qcclSuccess) break;
                if (qcclEmulatedStreamSynchronize(own.stream) != qcclEmulatedSuccess) _exit(2);
                if (async_error(own.comm) != qcclSuccess) break;
            }
            if (rank == 1) ::kill(getpid(), SIGKILL);
            reports[0] = async_error(own.comm);
            _exit(qcclCommDestroy(own.comm) == qcclSuccess ? 0 : 3);
        }));
    id.make();
    const auto status = processes.reap(0, [start = std::chrono::steady_clock::now()] {
        return std::chrono::steady_clock::now() - start < 60s;
    });
    CHECK(status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
    CHECK_EQ(reports[0], qcclPeerLost);
}

// The device memory that a rank exposes stays until its last reader is done.
void a_rank_may_leave_while_others_still_read() {
    for (int round = 0; round < 5; round++) {
        GpuRanks ranks(two);
        ranks.on_each([&](size_t number, GpuRank &rank) {
            GpuFloats values(100000, number == 0 ? 7.0F : 0.0F);
            if (number == 1) std::this_thread::sleep_for(20ms);
            check(qcclBroadcast(values.data(), values.data(), values.count(), qcclFloat32, 0,
                                rank.comm, QCCL_STREAM_SYNC));
            check(qcclCommDestroy(rank.comm));
            rank.comm = nullptr;
            CHECK(values.are(7));
        });
    }
}

// The same for small calls: a late rank reads the eager slots after the others are done.
void a_rank_may_leave_small_calls_while_others_still_read() {
    for (size_t round = 0; round < 12; round++) {
        GpuRanks ranks(two);
        ranks.on_each([&](size_t number, GpuRank &rank) {
            GpuFloats values(100, number == 0 ? 7.0F : 1.0F);
            qcclCollConfig_t config = QCCL_COLL_CONFIG_INIT;
            config.algorithm = "oneshot";
            if (number == round % 2) std::this_thread::sleep_for(10ms);
            check(all_reduce(values, rank, QCCL_STREAM_SYNC, &config));
            check(qcclCommDestroy(rank.comm));
            rank.comm = nullptr;
            CHECK(values.are(8));
        });
    }
}

// A call fails while it is enqueued, behind earlier calls whose peers have not come. The stream
// waits of the earlier calls open first, and that of the failed call opens, too.
void a_call_that_fails_behind_others_holds_no_stream_up() {
    uint64_t failures = 0;
    for (uint64_t n = 1; n <= 8; n++) {
        GpuRanks ranks(two);
        GpuRank &rank = ranks[0];
        CHECK_EMULATED(qcclEmulatedSetDevice(rank.gpu));
        qcclEmulatedStream_t other = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamCreateNonBlocking(&other));
        GpuFloats values(1000, 1), others(1000, 1);
        Latch latch, late;
        CHECK_EMULATED(qcclEmulatedLaunchHostFunc(rank.stream, Latch::hold, &latch));
        CHECK_EMULATED(qcclEmulatedLaunchHostFunc(other, Latch::hold, &late));
        check(all_reduce(values, rank, rank.stream));
        late.await_arrival();
        qcclEmulatedFailCall(n, qcclEmulatedErrorLaunchFailure);
        failures += all_reduce(others, rank, other) != qcclSuccess;
        qcclEmulatedFailCall(0, qcclEmulatedSuccess);
        check(qcclCommRevoke(rank.comm)); // if the call has not failed, no peer comes to it
        latch.open();
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        late.open();
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(other));
        CHECK_EMULATED(qcclEmulatedStreamDestroy(other));
    }
    CHECK(failures > 3);
}

// Ranks share a GPU, and a communicator ends while a call of another one holds a stream of that
// GPU.
void an_end_waits_for_no_stream_of_others() {
    GpuRanks ended({"emulated:0", "emulated:0"}), used({"emulated:0", "emulated:0"});
    CHECK_EMULATED(qcclEmulatedSetDevice(0));
    GpuFloats first(1000, 1), second(1000, 1);
    check(all_reduce(first, used[1], used[1].stream));
    for (const size_t rank : {size_t{0}, size_t{1}}) {
        check(qcclCommDestroy(ended[rank].comm));
        ended[rank].comm = nullptr;
    }
    CHECK_EQ(qcclEmulatedStreamQuery(used[1].stream), qcclEmulatedErrorNotReady);
    check(all_reduce(second, used[0], used[0].stream));
    for (const size_t rank : {size_t{0}, size_t{1}})
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(used[rank].stream));
    CHECK(first.are(2) && second.are(2));
}

void splits_keep_their_devices() {
    GpuRanks ranks({"emulated:0", "emulated:1", "emulated:2"});
    ranks.on_each([](size_t number, GpuRank &rank) {
        qcclComm_t part = nullptr;
        check(qcclCommSplit(rank.comm, number == 1 ? 1 : 0, 0, &part, nullptr));
        GpuFloats values(3000, 1);
        check(qcclAllReduce(values.data(), values.data(), values.count(), qcclFloat32, qcclSum,
                            part, rank.stream));
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        CHECK(values.are(number == 1 ? 1.0F : 2.0F));
        check(qcclCommDestroy(part));
    });
}

void devices_that_are_not_there_are_refused() {
    qcclComm_t comms[2] = {};
    const char *const beyond[] = {"emulated:0", "emulated:8"};
    CHECK_EQ(qcclCommInitAll(comms, 2, beyond), qcclInvalidArgument);
    CHECK(std::string(qcclGetLastError(nullptr)).find("8 GPUs") != std::string::npos);
    const char *const unknown[] = {"emulated:0", "gpu:0"};
    CHECK_EQ(qcclCommInitAll(comms, 2, unknown), qcclInvalidArgument);
    CHECK(std::string(qcclGetLastError(nullptr))
              .starts_with("devices[1] is \"gpu:0\"; possible are host, cuda:0"));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_dead_process_lets_the_streams_of_others_go_on),
        QTEST(calls_keep_their_place_in_the_stream),
        QTEST(the_call_returns_before_the_stream_comes_to_it),
        QTEST(ranks_may_come_to_small_calls_early_or_late),
        QTEST(the_default_stream_of_each_gpu),
        QTEST(calls_on_several_streams_keep_their_order),
        QTEST(streams_of_another_gpu_are_refused),
        QTEST(buffers_of_another_kind_are_refused_by_name),
        QTEST(a_rank_that_does_not_come_lets_the_stream_go_on),
        QTEST(an_abort_lets_the_stream_go_on),
        QTEST(a_stream_that_fails_fails_the_call_on_every_rank),
        QTEST(a_rank_may_leave_while_others_still_read),
        QTEST(a_rank_may_leave_small_calls_while_others_still_read),
        QTEST(a_call_that_fails_behind_others_holds_no_stream_up),
        QTEST(an_end_waits_for_no_stream_of_others),
        QTEST(splits_keep_their_devices),
        QTEST(devices_that_are_not_there_are_refused),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
