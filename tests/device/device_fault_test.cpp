// Tests failures of the GPU runtime: the n-th call to the runtime of emulated GPUs fails, for every
// n, during the creation of a communicator and in each collective. Every rank returns the error or
// ends with the right bytes, no stream hangs, and no resource leaks.
#include "device_ranks.hpp"
#include "tests/transport/killable_ranks.hpp"
#include "tests/kit/sample.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>

using namespace qtest;

namespace {

constexpr size_t count = 3000;
const std::vector<const char *> devices{"emulated:0", "emulated:1"};

// Every n is tried up to this one; from there on, n grows by a quarter each time.
constexpr uint64_t every_up_to = 150;
uint64_t next(uint64_t n) { return n < every_up_to ? n + thinning() : n + n / 4; }

// The send and receive buffers of one rank: floats of value 1.
struct Buffers {
    GpuFloats send{2 * count, 1}, recv{2 * count, 0};
};

qcclResult_t call(Collective collective, Buffers &buffers, const GpuRank &rank) {
    float *const send = buffers.send.data(), *const recv = buffers.recv.data();
    switch (collective) {
    case Collective::all_reduce:
        return qcclAllReduce(send, recv, count, qcclFloat32, qcclSum, rank.comm, rank.stream);
    case Collective::reduce_scatter:
        return qcclReduceScatter(send, recv, count, qcclFloat32, qcclSum, rank.comm, rank.stream);
    case Collective::all_gather:
        return qcclAllGather(send, recv, count, qcclFloat32, rank.comm, rank.stream);
    case Collective::broadcast:
        return qcclBroadcast(send, recv, count, qcclFloat32, 0, rank.comm, rank.stream);
    case Collective::reduce:
        return qcclReduce(send, recv, count, qcclFloat32, qcclSum, 0, rank.comm, rank.stream);
    case Collective::gather:
        return qcclGather(send, recv, count, qcclFloat32, 0, rank.comm, rank.stream);
    case Collective::scatter:
        return qcclScatter(send, recv, count, qcclFloat32, 0, rank.comm, rank.stream);
    case Collective::all_to_all:
        return qcclAllToAll(send, recv, count, qcclFloat32, rank.comm, rank.stream);
    case Collective::scan:
        return qcclScan(send, recv, count, qcclFloat32, qcclSum, rank.comm, rank.stream);
    case Collective::exscan:
        return qcclExscan(send, recv, count, qcclFloat32, qcclSum, rank.comm, rank.stream);
    default: return qcclBarrier(rank.comm, rank.stream);
    }
}

float expected(Collective collective, size_t rank) {
    if (row_of(collective).has_one_result && rank != 0) return 0;
    const auto all = static_cast<uint32_t>(devices.size()), of = static_cast<uint32_t>(rank);
    return reduces(collective) ? static_cast<float>(covered_ranks(collective, of, all))
           : collective == Collective::barrier ? 0.0F
                                               : 1.0F;
}

// Returns whether the call failed. Throws if the error is not the injected one.
bool has_failed(Collective collective, Buffers &buffers, GpuRank &rank) {
    const qcclResult_t result = call(collective, buffers, rank);
    if (result == qcclSuccess) {
        (void)qcclEmulatedStreamSynchronize(rank.stream);
        while (async_error(rank.comm) == qcclInProgress)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const qcclResult_t error = result != qcclSuccess ? result : async_error(rank.comm);
    if (error == qcclSuccess) return false;
    const std::string said = qcclGetLastError(rank.comm);
    if (said.find("emulated:") == std::string::npos) throw Failure{"it says: " + said};
    return true;
}

// Makes one call in which the n-th call to the runtime fails. Returns whether the runtime was
// called that often.
bool run_with_failure(Collective collective, uint64_t n) {
    GpuRanks ranks(devices);
    std::vector<std::unique_ptr<Buffers>> buffers(ranks.size());
    ranks.on_each([&](size_t number, GpuRank &) { buffers[number] = std::make_unique<Buffers>(); });
    const uint64_t before = qcclEmulatedCountCalls();
    qcclEmulatedFailCall(n, qcclEmulatedErrorLaunchFailure);
    std::vector<char> failed(ranks.size());
    ranks.on_each([&](size_t number, GpuRank &rank) {
        failed[number] = has_failed(collective, *buffers[number], rank) ? 1 : 0;
    });
    const bool was_reached = qcclEmulatedCountCalls() - before >= n;
    qcclEmulatedFailCall(0, qcclEmulatedSuccess);
    for (size_t rank = 0; rank < ranks.size(); rank++) {
        if (failed[rank] != 0) continue;
        const auto values = buffers[rank]->recv.read();
        CHECK(std::all_of(values.begin(), values.begin() + count,
                          [&](float v) { return v == expected(collective, rank); }));
    }
    return was_reached;
}

void check_collective(Collective collective) {
    CHECK(!run_with_failure(collective, UINT64_MAX)); // allocates what lasts as long as the process
    const size_t held = count_held();
    uint64_t failures = 0;
    for (uint64_t n = 1; run_with_failure(collective, n); n = next(n)) {
        failures++;
        // If the failed runtime call was the query whether a stream still waits on a host word,
        // that word is not freed.
        CHECK(count_held() <= held + 2 + failures / 4);
    }
    CHECK(failures > 10 / thinning());
}

void in_all_reduce() { check_collective(Collective::all_reduce); }
struct Setting {
    Setting(const char *name, const char *value) : name_(name) { setenv(name, value, 1); }
    ~Setting() { unsetenv(name_); }
    Setting(const Setting &) = delete;

private:
    const char *name_;
};
void in_all_reduce_of_two_exchanges() {
    const Setting setting("QCCL_ALGO", "direct");
    check_collective(Collective::all_reduce);
}
void in_reduce_scatter() { check_collective(Collective::reduce_scatter); }
void in_all_gather() { check_collective(Collective::all_gather); }
void in_broadcast() { check_collective(Collective::broadcast); }
void in_reduce() { check_collective(Collective::reduce); }
void in_gather() { check_collective(Collective::gather); }
void in_scatter() { check_collective(Collective::scatter); }
void in_all_to_all() { check_collective(Collective::all_to_all); }
void in_scan() { check_collective(Collective::scan); }
void in_exscan() { check_collective(Collective::exscan); }
void in_barrier() { check_collective(Collective::barrier); }

void while_communicators_are_made() {
    { const GpuRanks ranks(devices); } // allocates what lasts as long as the process
    const size_t held = count_held();
    uint64_t failures = 0;
    for (uint64_t n = 1;; n = next(n)) {
        const uint64_t before = qcclEmulatedCountCalls();
        qcclEmulatedFailCall(n, qcclEmulatedErrorMemoryAllocation);
        qcclComm_t comms[2] = {};
        const qcclResult_t made = qcclCommInitAll(comms, 2, devices.data());
        const bool was_reached = qcclEmulatedCountCalls() - before >= n;
        qcclEmulatedFailCall(0, qcclEmulatedSuccess);
        if (made == qcclSuccess)
            for (const qcclComm_t comm : comms) check(qcclCommDestroy(comm));
        else
            CHECK(std::string(qcclGetLastError(nullptr)).find("emulated:") != std::string::npos);
        CHECK_EQ(count_held(), held);
        if (!was_reached) break;
        failures++;
    }
    CHECK(failures > 10 / thinning());
}

// A GPU without memory for the outbox: creation fails with an error that names the GPU.
void without_memory_there_is_no_communicator() {
    const char *const others[] = {"emulated:2", "emulated:3"}; // no communicator has used them yet
    qcclEmulatedLimitMemory(size_t{1} << 18);
    qcclComm_t comms[2] = {};
    const qcclResult_t made = qcclCommInitAll(comms, 2, others);
    qcclEmulatedLimitMemory(SIZE_MAX);
    CHECK_EQ(made, qcclUnhandledDeviceError);
    CHECK(std::string(qcclGetLastError(nullptr)).find("emulated:") != std::string::npos);
}

// A host word on which a stream still waits must not be given to another communicator.
void a_stream_goes_on_whatever_failed() {
    for (uint64_t n = 1; n < 20; n++) {
        GpuRanks ranks({"emulated:0"});
        ranks.on_each([&](size_t, GpuRank &rank) {
            GpuFloats values(10, 1);
            CHECK_EMULATED(qcclEmulatedLaunchHostFunc(
                rank.stream,
                [](void *) { std::this_thread::sleep_for(std::chrono::milliseconds(30)); },
                nullptr));
            qcclEmulatedFailCall(n, qcclEmulatedErrorMemoryAllocation);
            (void)all_reduce(values, rank, rank.stream);
            qcclEmulatedFailCall(0, qcclEmulatedSuccess);
            check(qcclCommDestroy(rank.comm));
            rank.comm = nullptr;
            const GpuRanks next({"emulated:0"});
            for (int i = 0; i < 1000 && qcclEmulatedStreamQuery(rank.stream) != 0; i++)
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            CHECK_EMULATED(qcclEmulatedStreamQuery(rank.stream));
        });
    }
}

// The call runs in a child process, because this process may have other threads. The threads of the
// emulated GPU do not count.
void a_thread_that_waits_for_itself_is_told() {
    killable::Processes processes;
    CHECK(processes.start([] {
        qcclEmulatedBeginAgain();
        qcclComm_t comms[2] = {};
        if (qcclCommInitAll(comms, 2, devices.data()) != qcclSuccess) _exit(1);
        if (qcclBarrier(comms[0], QCCL_STREAM_SYNC) != qcclInvalidUsage) _exit(2);
        if (!std::strstr(qcclGetLastError(nullptr), "need a thread each")) _exit(3);
        for (const qcclComm_t comm : comms) (void)qcclCommDestroy(comm);
        _exit(0);
    }));
    const auto status = processes.reap(0, [start = std::chrono::steady_clock::now()] {
        return std::chrono::steady_clock::now() - start < std::chrono::seconds(60);
    });
    CHECK(status && WIFEXITED(*status));
    CHECK_EQ(WEXITSTATUS(*status), 0);
}

} // namespace

int main() {
    setenv("QCCL_TIMEOUT", "20", 1);
    setenv("QCCL_DEBUG_FILE", "/dev/null", 1);
    setenv("QCCL_ARENA", "1M", 1); // small: each communicator fills two new arenas
    const CMUnitTest tests[] = {
        QTEST(a_stream_goes_on_whatever_failed),
        QTEST(a_thread_that_waits_for_itself_is_told),
        QTEST(while_communicators_are_made),
        QTEST(without_memory_there_is_no_communicator),
        QTEST(in_all_reduce),
        QTEST(in_all_reduce_of_two_exchanges),
        QTEST(in_reduce_scatter),
        QTEST(in_all_gather),
        QTEST(in_broadcast),
        QTEST(in_reduce),
        QTEST(in_gather),
        QTEST(in_scatter),
        QTEST(in_all_to_all),
        QTEST(in_scan),
        QTEST(in_exscan),
        QTEST(in_barrier),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
