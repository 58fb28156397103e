// Tests GpuStaging of lib/comm/comm_memory if GPUs do not reach each other's memory: one rank logs
// why, and calls go through host memory.
#include "device_ranks.hpp"

#include <cstdlib>
#include <memory>

using namespace qtest;

namespace {

const std::vector<const char *> two{"emulated:0", "emulated:1"};
constexpr char told[] = "GPUs do not reach each other's memory";

void sum_on(GpuRanks &ranks) {
    ranks.on_each([&](size_t, GpuRank &rank) {
        GpuFloats values(100, 1);
        check(all_reduce(values, rank, QCCL_STREAM_SYNC));
        CHECK(values.are(static_cast<float>(ranks.size())));
    });
}

// While the object lives, no GPU reaches the memory of another.
class WithoutPeers {
public:
    WithoutPeers() { qcclEmulatedForbidPeers(1); }
    ~WithoutPeers() { qcclEmulatedForbidPeers(0); }
};

void gpus_that_reach_each_other_are_no_news() {
    LogLines lines;
    GpuRanks ranks(two, lines.config());
    sum_on(ranks);
    CHECK_EQ(lines.count(told), 0U);
}

void one_rank_says_why_gpus_do_not_reach_each_other() {
    const WithoutPeers now;
    LogLines lines;
    GpuRanks ranks({"emulated:0", "emulated:1", "emulated:2"}, lines.config());
    sum_on(ranks);
    CHECK_EQ(lines.count(told), 1U);
    CHECK_EQ(lines.count("rank 0 does not reach rank 1: emulated:0: cannot reach the memory of "
                         "emulated:1"),
             1U);
}

// Ranks 0 and 1 share a GPU and reach each other; neither of them reaches rank 2.
void a_rank_that_reaches_some_says_whom_it_does_not_reach() {
    const WithoutPeers now;
    LogLines lines;
    GpuRanks ranks({"emulated:3", "emulated:3", "emulated:5"}, lines.config());
    sum_on(ranks);
    CHECK_EQ(lines.count(told), 1U);
    CHECK_EQ(lines.count("rank 0 does not reach rank 2: emulated:3"), 1U);
}

// The memory of rank 1 cannot be named. Rank 0 does not reach that memory either, but only rank 1
// knows why. Which runtime call names the memory differs from run to run, so the test lets one call
// after the other fail.
void a_rank_whose_memory_has_no_name_says_why() {
    const uint64_t before = qcclEmulatedCountCalls();
    { const GpuRanks ranks(two, QCCL_CONFIG_INIT); }
    const uint64_t calls = qcclEmulatedCountCalls() - before;
    for (uint64_t attempt = 0; attempt < 50 * calls; attempt++) {
        LogLines lines;
        std::unique_ptr<GpuRanks> ranks;
        qcclEmulatedFailCall(1 + attempt % calls, qcclEmulatedErrorMemoryAllocation);
        try {
            ranks = std::make_unique<GpuRanks>(two, lines.config());
        } catch (const Failure &) { // creation needs the call that failed
        }
        qcclEmulatedFailCall(0, qcclEmulatedSuccess);
        CHECK_EQ(lines.count("of another make"), 0U);
        if (!ranks || lines.count("emulated:1: cannot name memory: ") == 0) continue;
        CHECK_EQ(lines.count(told), 1U);
        return sum_on(*ranks);
    }
    throw Failure{"no call was one that names memory of rank 1"};
}

} // namespace

int main() {
    setenv("QCCL_ARENA", "1M", 1); // small, so that creation is fast
    const CMUnitTest tests[] = {
        QTEST(gpus_that_reach_each_other_are_no_news),
        QTEST(one_rank_says_why_gpus_do_not_reach_each_other),
        QTEST(a_rank_that_reaches_some_says_whom_it_does_not_reach),
        QTEST(a_rank_whose_memory_has_no_name_says_why),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
