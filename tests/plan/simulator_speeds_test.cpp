// Tests tiered_rates() and compute_speeds() of lib/plan/simulator/fabric: how the planner's
// figures, settings and places become the simulator's.
#include "tests/kit/qtest.hpp"

#include "tests/kit/forms.hpp"
#include "tests/kit/plan_kit.hpp"

#include "plan/simulator/fabric.hpp"
#include "plan/simulator/simulator.hpp"

#include <cmath>

using namespace qccl;
using namespace qtest;

namespace {

ComputeSpeeds speeds_of(const Problem &problem, const CostModel &speeds = {},
                        const SimulatedHost &host = {.ranks = 2}) {
    return compute_speeds(speeds, problem, {}, host);
}

Problem with_codec(Problem problem, const char *name) {
    problem.codec = codec(name);
    return problem;
}

} // namespace

static void messages_follow_the_planners_figures() {
    const CostModel usual;
    const TieredRates rates = tiered_rates(usual, {});
    CostModel other = usual;
    other.remote.alone.latency_ns += 1000;
    other.remote.alone.message_ns *= 2;
    other.local.shared.byte_ns *= 3;
    other.remote_bytes_per_ns = 7;
    other.remote_burst_bytes = 99;
    const TieredRates changed = tiered_rates(other, {});
    CHECK_EQ(changed.remote.alone.latency_ns, rates.remote.alone.latency_ns + 1000);
    CHECK_EQ(changed.remote.alone.message_ns, 2 * rates.remote.alone.message_ns);
    CHECK_EQ(changed.local.shared.byte_ns, 3 * rates.local.shared.byte_ns);
    CHECK(changed.remote.shared == rates.remote.shared);
    CHECK_EQ(changed.line_rate, 7.0);
    CHECK_EQ(changed.line_burst_bytes, 99.0);
    other.remote.alone.latency_ns = 0; // no network is that fast
    CHECK(tiered_rates(other, {}).remote.alone.latency_ns > 0);
}

static void of_gpus_the_planners_figures_are_taken() {
    const CostModel speeds = gpu_cost_model_by({}, 1, GpuReach::gpus);
    const TieredRates rates = tiered_rates(speeds, {.ranks = 8, .has_gpus = true});
    CHECK(rates.local == speeds.local);
    CHECK_EQ(rates.busy_core, 1.0);
    CHECK_EQ(rates.rendezvous_ns, 0.0);
    const ComputeSpeeds computing = speeds_of(all_reduce(1 << 20, 8), speeds, {8, true});
    CHECK_EQ(computing.copy, speeds.copy.at(4 << 20));
    CHECK_EQ(computing.call_ns, 0.0);
}

// For GPUs the simulator uses the planner's own figures. Segments in few lanes take long down a
// tree of many ranks, whose upper ranks are all on different hosts.
static void deep_trees_take_as_long_as_is_predicted() {
    constexpr uint32_t gpus = 8;
    CostModel speeds = gpu_cost_model_by({}, 1, GpuReach::gpus);
    speeds.remote_bytes_per_ns = 370;
    const SimulatedHost host{.ranks = gpus, .has_gpus = true};
    for (const uint32_t hosts : {8U, 32U}) {
        std::vector<uint32_t> host_of;
        for (uint32_t rank = 0; rank < gpus * hosts; rank++) host_of.push_back(rank / gpus);
        const RankTopology places = places_on(host_of);
        Problem problem = all_reduce(64 * mebibyte, gpus * hosts, DataType::float32, "int8:min=0");
        problem.places = &places;
        PlannerInputs with = inputs;
        with.speeds = speeds;
        with.limits = {.arena_bytes = 64 * mebibyte, .segment_bytes = 4 * mebibyte, .max_lanes = 4};
        const auto plan = choose(problem, with, algorithm_of("tree:shape=double"));
        CHECK_OK(plan);
        problem.codec = plan->codec;
        const auto fabric = make_tiered_fabric(problem.ranks, &places, tiered_rates(speeds, host));
        const auto done = simulate({.problem = problem,
                                    .algorithm = plan->algorithm,
                                    .limits = with.limits,
                                    .speeds = compute_speeds(speeds, problem, {}, host)},
                                   *fabric);
        CHECK_OK(done);
        CHECK(plan->cost.time_ns > 0.88 * done->time_ns);
        CHECK(plan->cost.time_ns < 1.12 * done->time_ns);
    }
}

static void memory_is_slower_the_more_of_it_is_used() {
    const Problem small = all_reduce(1 << 10, 2), large = all_reduce(1 << 20, 2),
                  huge = all_reduce(1 << 24, 2);
    CHECK(speeds_of(small).memory > speeds_of(large).memory);
    CHECK(speeds_of(large).memory > speeds_of(huge).memory);
    CHECK(speeds_of(large).memory > 3 * speeds_of(large, {}, {.ranks = 16}).memory);
    CostModel slow;
    for (CopySpeeds::SpeedPoint &point : slow.copy.points) point.bytes_per_ns /= 2;
    CHECK_EQ(speeds_of(large, slow).memory, speeds_of(large).memory / 2);
    CHECK_EQ(speeds_of(large, slow).copy, speeds_of(large).copy); // copies within the nearest cache
}

static void codecs_are_slower_where_ranks_share_cores() {
    const Problem coded = with_codec(all_reduce(1 << 20, 2), "int8");
    const ComputeSpeeds alone = speeds_of(coded);
    CostModel shared;
    shared.ranks_per_core = 2;
    CHECK(speeds_of(coded, shared).outer.encode < alone.outer.encode);
    CHECK(speeds_of(coded, shared).call_ns > alone.call_ns);
    CHECK(alone.call_ns > speeds_of(all_reduce(1 << 20, 2)).call_ns);
    CHECK(alone.chunk_ns > speeds_of(all_reduce(1 << 20, 2)).chunk_ns);
    // A slow codec's time is spent computing, and hardly on memory.
    CostModel slow;
    slow.codec_rates = CodecRates({0.5F, 0.5F, 0.5F});
    const ComputeSpeeds computing = speeds_of(coded, slow);
    for (const double rate :
         {computing.outer.encode, computing.outer.decode, computing.outer.decode_add})
        CHECK(rate >= 0.5 && rate < 0.52);
}

static void small_calls_pay_less_for_each_byte_between_hosts() {
    CHECK(speeds_of(all_reduce(1 << 10, 2)).network_byte_share <
          speeds_of(all_reduce(1 << 17, 2)).network_byte_share);
    CHECK_EQ(speeds_of(all_reduce(1 << 24, 2)).network_byte_share, 1.0);
}

// A calibration's factors hold for one model. A change of what is counted or simulated needs the
// next model number, and new sums below.
static void another_model_has_another_number() {
    const RankTopology places = places_on({0, 0, 1, 1});
    double counted = 0, simulated = 0;
    for (const double ranks_per_core : {1.0, 2.0})
        for (const char *const name : {"none", "int8:min=0"})
            for (const uint64_t count : {1 << 10, 1 << 22}) {
                Problem problem = all_reduce(count, 4, DataType::float32, name);
                problem.places = &places;
                PlannerInputs with = inputs;
                with.speeds.ranks_per_core = ranks_per_core;
                const auto candidates = find_candidates(problem, with);
                CHECK_OK(candidates);
                problem.codec.min_bytes.reset();
                const SimulatedHost host{.ranks = 2};
                for (const Candidate &each : *candidates) {
                    counted += each.plan.cost.time_ns;
                    const auto fabric =
                        make_tiered_fabric(4, &places, tiered_rates(with.speeds, host));
                    const auto done =
                        simulate({.problem = problem,
                                  .algorithm = each.plan.algorithm,
                                  .limits = with.limits,
                                  .speeds = compute_speeds(with.speeds, problem, {}, host)},
                                 *fabric);
                    CHECK_OK(done);
                    simulated += done->time_ns;
                }
            }
    CHECK_EQ(cost_model_version, uint64_t{3});
    CHECK_EQ(std::llround(counted), 5537038905);
    CHECK_EQ(std::llround(simulated), 5288706008);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(another_model_has_another_number),
        QTEST(messages_follow_the_planners_figures),
        QTEST(of_gpus_the_planners_figures_are_taken),
        QTEST(deep_trees_take_as_long_as_is_predicted),
        QTEST(memory_is_slower_the_more_of_it_is_used),
        QTEST(codecs_are_slower_where_ranks_share_cores),
        QTEST(small_calls_pay_less_for_each_byte_between_hosts),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
