// Tests the C API with a graph on an emulated GPU whose stream reaches a captured call only while
// the caller's thread finalizes, destroys, shrinks or splits the communicator: the captured call
// waits for that thread, because both would use the same transport.
#include "device_ranks.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>

using namespace qtest;
using namespace std::chrono_literals;

namespace {

// True on threads of the program, false on threads of a communicator.
thread_local bool is_of_program = false;

// Receives rank 0's idle and log callbacks, which run on the thread that waits or logs. The first
// time that this is the caller's thread, the callback stays until the graph's stream has reached
// its call and the call has had time. Meanwhile `strangers` counts the waits of the communicator's
// own threads.
class Lookout {
public:
    // Stays at a log line that contains `part`; empty: stays in a wait.
    explicit Lookout(std::string part) : part_(std::move(part)) {}
    qcclConfig_t config() {
        qcclConfig_t config = QCCL_CONFIG_INIT;
        config.idle = {.function = look, .context = this};
        config.log = {.function = hear, .context = this};
        return config;
    }
    static void hold_stream(void *lookout) {
        while (!static_cast<Lookout *>(lookout)->may_come_) std::this_thread::sleep_for(1ms);
    }
    void begin(qcclComm_t comm) {
        comm_ = comm;
        caller_ = std::this_thread::get_id();
        is_watching_ = true;
    }
    // The other ranks wait here until the callback no longer stays, or rank 0 has failed. `comm`:
    // the rank's, or null if it has ended.
    void await_release(qcclComm_t comm) const {
        while (!is_released_) {
            if (comm && !is_well(async_error(comm)))
                throw Failure{"rank 0 has failed while another rank waits for its operation"};
            std::this_thread::sleep_for(1ms);
        }
    }
    int strangers() const { return strangers_; }

private:
    static bool is_well(qcclResult_t result) {
        return result == qcclSuccess || result == qcclInProgress;
    }
    static void look(void *lookout) {
        auto &own = *static_cast<Lookout *>(lookout);
        if (!own.is_watching_) return;
        if (!is_of_program)
            own.strangers_++;
        else if (own.part_.empty() && std::this_thread::get_id() == own.caller_)
            own.stay();
    }
    static void hear(int32_t, const char *line, void *lookout) {
        auto &own = *static_cast<Lookout *>(lookout);
        const bool is_callers = own.is_watching_ && std::this_thread::get_id() == own.caller_;
        if (!is_callers || own.part_.empty()) return;
        if (std::string(line).find(own.part_) != std::string::npos) own.stay();
    }
    void stay() {
        may_come_ = true;
        for (int looks = 0; looks < 100 && strangers_ == 0;) {
            std::this_thread::sleep_for(1ms);
            looks += async_error(comm_) == qcclInProgress;
        }
        is_watching_ = false;
        is_released_ = true;
    }

    const std::string part_;
    std::atomic<bool> is_watching_{false}, may_come_{false}, is_released_{false};
    std::atomic<int> strangers_{0};
    std::thread::id caller_;
    qcclComm_t comm_ = nullptr;
};

void broadcast(GpuFloats &values, const GpuRank &rank) {
    check(qcclBroadcast(values.data(), values.data(), values.count(), qcclFloat32, 0, rank.comm,
                        QCCL_STREAM_SYNC));
}

struct Operation {
    std::string told_by; // `part` of Lookout
    std::function<void(size_t number, GpuRank &)> run;
    bool begins_alone = false; // the other ranks begin once rank 0 is released
    size_t ranks = 2;
};

// Rank 0 broadcasts without waiting for the others, launches its graph and does the operation. The
// stream reaches the graph's call only during the operation.
void check_operation(const Operation &operation) {
    Lookout lookout(operation.told_by);
    std::vector<const char *> devices{"emulated:0", "emulated:1", "emulated:2"};
    devices.resize(operation.ranks);
    GpuRanks ranks(devices, lookout.config());
    ranks.on_each([&](size_t number, GpuRank &rank) {
        is_of_program = true;
        GpuFloats values(1000, 1), sent(size_t{1} << 20, 1);
        broadcast(sent, rank); // the first call of a shape waits for all ranks
        CHECK_EMULATED(
            qcclEmulatedStreamBeginCapture(rank.stream, qcclEmulatedCaptureModeThreadLocal));
        if (number == 0)
            CHECK_EMULATED(qcclEmulatedLaunchHostFunc(rank.stream, Lookout::hold_stream, &lookout));
        check(all_reduce(values, rank, rank.stream));
        qcclEmulatedGraph_t graph = nullptr;
        CHECK_EMULATED(qcclEmulatedStreamEndCapture(rank.stream, &graph));
        qcclEmulatedGraphExec_t exec = nullptr;
        CHECK_EMULATED(qcclEmulatedGraphInstantiate(&exec, graph));
        CHECK_EMULATED(qcclEmulatedGraphDestroy(graph));
        if (number != 0 && operation.begins_alone) lookout.await_release(rank.comm);
        broadcast(sent, rank);
        if (number == 0) {
            CHECK_EMULATED(qcclEmulatedGraphLaunch(exec, rank.stream));
            lookout.begin(rank.comm);
        }
        operation.run(number, rank);
        if (number != 0) {
            lookout.await_release(rank.comm);
            if (rank.comm) CHECK_EMULATED(qcclEmulatedGraphLaunch(exec, rank.stream));
        }
        CHECK_EMULATED(qcclEmulatedStreamSynchronize(rank.stream));
        if (rank.comm) CHECK_EQ(async_error(rank.comm), qcclSuccess);
        CHECK(values.are(rank.comm ? static_cast<float>(operation.ranks) : 1.0F));
        CHECK_EMULATED(qcclEmulatedGraphExecDestroy(exec));
    });
    CHECK_EQ(lookout.strangers(), 0);
}

void a_call_waits_while_the_communicator_is_finalized() {
    check_operation({.told_by = "",
                     .run = [](size_t, GpuRank &rank) { check(qcclCommFinalize(rank.comm)); },
                     .begins_alone = true});
}

// The communicator is gone after the wait, so the call is not made then either.
void a_call_waits_while_the_communicator_is_destroyed() {
    check_operation({.told_by = "",
                     .run =
                         [](size_t, GpuRank &rank) {
                             check(qcclCommDestroy(rank.comm));
                             rank.comm = nullptr;
                         },
                     .begins_alone = true});
}

void a_call_waits_while_the_communicator_is_shrunk() {
    check_operation(
        {.told_by = "leaves out rank 2",
         .run =
             [](size_t number, GpuRank &rank) {
                 if (number == 2) return;
                 constexpr int left_out[] = {2};
                 qcclComm_t rest = nullptr;
                 check(qcclCommShrink(rank.comm, left_out, 1, &rest, nullptr, QCCL_SHRINK_DEFAULT));
                 check(qcclCommDestroy(rest));
             },
         .ranks = 3});
}

void a_call_waits_while_the_communicator_is_split() {
    check_operation({.told_by = "rank 0 of 2 over", .run = [](size_t, GpuRank &rank) {
                         qcclComm_t all = nullptr;
                         check(qcclCommSplit(rank.comm, 0, 0, &all, nullptr));
                         check(qcclCommDestroy(all));
                     }});
}

} // namespace

int main() {
    setenv("QCCL_DEBUG", "info", 1);
    // The vector that rank 0 broadcasts without waiting for the others has to fit.
    setenv("QCCL_ARENA", "16M", 1);
    const CMUnitTest tests[] = {
        QTEST(a_call_waits_while_the_communicator_is_finalized),
        QTEST(a_call_waits_while_the_communicator_is_destroyed),
        QTEST(a_call_waits_while_the_communicator_is_shrunk),
        QTEST(a_call_waits_while_the_communicator_is_split),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
