// Tests perf/run/interleaved_timing and perf/report/measurement: turns are fair and complete,
// statistics are those of the textbook, and sizes and bandwidths are those of nccl-tests.
#include "tests/kit/qtest.hpp"

#include "perf/report/measurement.hpp"
#include "perf/run/rank_group.hpp"

#include <cmath>

using namespace qccl;
using namespace qccl::perf;

static void statistics_are_the_textbooks() {
    const double odd[] = {5, 1, 3};
    CHECK(statistics(odd).median == 3);
    CHECK(statistics(odd).mean == 3);
    const double even[] = {4, 1, 3, 2};
    CHECK(statistics(even).median == 2.5);
    CHECK(statistics(even).min == 1);
    CHECK(statistics(even).max == 4);
    CHECK(std::fabs(statistics(even).deviation - std::sqrt(1.25)) < 1e-12);
    std::vector<double> hundred;
    for (int i = 100; i > 0; i--) hundred.push_back(i);
    CHECK(statistics(hundred).p99 == 99);
    CHECK(statistics(hundred).p95 == 95);
    const std::vector<double> ten(hundred.end() - 10, hundred.end());
    CHECK(statistics(ten).p95 == 10); // between two values the larger one
    CHECK(statistics({}).mean == 0);
    const double one[] = {7};
    CHECK(statistics(one).p99 == 7);
}

// Returns a script of what was called in which order: 'a' and 'b' for calls, 'A' and 'B' for
// refills.
static std::string script(const TurnOptions &options, uint64_t calls_per_refill) {
    std::string said;
    const auto timed_call = [&](char letter) -> TimedCall {
        return {.call = [&said, letter]() -> Done {
                    said += letter;
                    return {};
                },
                .refill = [&said, letter]() -> Done {
                    said += static_cast<char>(letter - 'a' + 'A');
                    return {};
                },
                .calls_per_refill = calls_per_refill};
    };
    const auto run_memory = RunMemory::create(1);
    CHECK_OK(run_memory);
    const auto rank_group = (*run_memory)->join(0);
    const TimedCall both[] = {timed_call('a'), timed_call('b')};
    const auto times = time_in_turns(*rank_group, both, options);
    CHECK_OK(times);
    for (const Times &one : *times) {
        CHECK_EQ(one.us.size(), options.iterations);
        CHECK_EQ(one.cpu_us.size(), options.iterations);
    }
    return said;
}

static void timed_calls_take_turns() {
    CHECK_EQ(script({.iterations = 4, .warmup_iterations = 0, .turns = 2}, 0),
             std::string("AaaBbbAaaBbb"));
    CHECK_EQ(script({.iterations = 3, .warmup_iterations = 2, .turns = 9}, 0),
             std::string("AaaBbbAaBbAaBbAaBb"));
    CHECK_EQ(script({.iterations = 1, .warmup_iterations = 0, .aggregated = 3}, 0),
             std::string("AaaaBbbb"));
    CHECK_EQ(script({.iterations = 2, .warmup_iterations = 0, .lead_in = 1}, 0),
             std::string("AaaaBbbb"));
}

// The script has 'c' for calls, '.' where they are waited for, and 'R' for refills.
static void what_is_enqueued_is_waited_for_in_every_iteration() {
    std::string said;
    const auto run_memory = RunMemory::create(1);
    CHECK_OK(run_memory);
    const auto rank_group = (*run_memory)->join(0);
    const auto say = [&said](char letter) -> Done {
        said += letter;
        return {};
    };
    const TimedCall one{.call = [&] { return say('c'); },
                        .finish = [&] { return say('.'); },
                        .refill = [&] { return say('R'); }};
    const auto times =
        time_in_turns(*rank_group, std::span(&one, 1),
                      {.iterations = 2, .warmup_iterations = 3, .aggregated = 2, .lead_in = 1});
    CHECK_OK(times);
    CHECK_EQ(said, std::string("Rccc.Rc.cc.cc."));
    const Times &found = times->front();
    CHECK_EQ(found.enqueue_us.size(), 2U);
    for (size_t i = 0; i < 2; i++) CHECK(found.enqueue_us[i] <= found.us[i]);
}

static void buffers_are_refilled_in_time() {
    CHECK_EQ(script({.iterations = 5, .warmup_iterations = 0}, 2), std::string("AaaAaaAaBbbBbbBb"));
    CHECK_EQ(script({.iterations = 2, .warmup_iterations = 3}, 1),
             std::string("AaAaAaBbBbBbAaAaBbBb"));
    CHECK_EQ(script({.iterations = 4, .warmup_iterations = 0, .lead_in = 1}, 3),
             std::string("AaaaAaaaBbbbBbbb"));
}

static void sizes_are_those_of_nccl_tests() {
    const auto of = [](Collective collective, uint64_t bytes, DataType type = DataType::float32) {
        return operation_of(collective, type, RedOp::sum, 0, 3, bytes);
    };
    const Operation sum = of(Collective::all_reduce, 1000);
    CHECK_EQ(sum.count, 250U);
    CHECK_EQ(sum.bytes(), 1000U);
    // A rank's part is a multiple of 16 bytes.
    const Operation gather = of(Collective::all_gather, 4096);
    CHECK_EQ(gather.count, 340U);
    CHECK_EQ(gather.send_count(), 340U);
    CHECK_EQ(gather.recv_count(), 1020U);
    CHECK_EQ(gather.bytes(), 4080U);
    CHECK_EQ(gather.send_in_place_start(1), 340U);
    const Operation scatter = of(Collective::reduce_scatter, 4096, DataType::float64);
    CHECK_EQ(scatter.count, 170U);
    CHECK_EQ(scatter.send_count(), 510U);
    CHECK_EQ(scatter.recv_in_place_start(1), 170U);
    CHECK_EQ(of(Collective::all_gather, 8).bytes(), 0U);
    CHECK_EQ(of(Collective::broadcast, 7, DataType::int8).count, 7U);
}

static void bandwidths_are_those_of_nccl_tests() {
    const auto of = [](Collective collective) {
        return Operation{.collective = collective, .ranks = 4, .count = 250000000};
    };
    CHECK(of(Collective::all_reduce).algbw(1) == 1.0);
    CHECK(of(Collective::all_reduce).busbw(1) == 1.5);
    CHECK(of(Collective::broadcast).busbw(1) == 1.0);
    CHECK(of(Collective::all_gather).algbw(1) == 4.0);
    CHECK(of(Collective::all_gather).busbw(1) == 3.0);
    CHECK(of(Collective::reduce_scatter).busbw(2) == 1.5);
    CHECK(of(Collective::all_reduce).algbw(0) == 0.0);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(statistics_are_the_textbooks),
        QTEST(timed_calls_take_turns),
        QTEST(what_is_enqueued_is_waited_for_in_every_iteration),
        QTEST(buffers_are_refilled_in_time),
        QTEST(sizes_are_those_of_nccl_tests),
        QTEST(bandwidths_are_those_of_nccl_tests),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
