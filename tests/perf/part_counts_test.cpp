// Tests perf/report/part_counts and the v-forms of perf/report/measurement: parts share all
// elements, starts follow from counts, and sizes and bandwidths are those of the busiest rank.
#include "tests/kit/qtest.hpp"

#include "perf/report/measurement.hpp"
#include "perf/report/part_counts.hpp"

#include <numeric>

using namespace qccl;
using namespace qccl::perf;

static constexpr Skew skews[] = {Skew::equal, Skew::linear, Skew::one, Skew::random};

static std::shared_ptr<const PartCounts> parts(Collective collective, Skew skew, uint32_t ranks,
                                               uint64_t count, uint32_t root = 0) {
    return PartCounts::create({.collective = collective,
                               .skew = skew,
                               .seed = 3,
                               .ranks = ranks,
                               .root = root,
                               .count = count});
}

static void parts_share_all_elements() {
    for (const VForm &form : v_forms)
        for (const Skew skew : skews)
            for (const uint32_t ranks : {1U, 2U, 3U, 64U})
                for (const uint64_t count :
                     {uint64_t{0}, uint64_t{1}, uint64_t{1000}, uint64_t{1} << 40}) {
                    const auto found = parts(form.of, skew, ranks, count);
                    const bool exchanges = row_of(form.of).exchanges;
                    uint64_t all = 0;
                    for (uint32_t rank = 0; rank < ranks; rank++) {
                        if (!exchanges) CHECK_EQ(found->own_start(rank), all);
                        all += found->of(rank, rank);
                        CHECK(found->sent(rank) <= found->most_sent());
                        CHECK(found->received(rank) <= count * ranks);
                    }
                    if (!exchanges) CHECK_EQ(all, count * ranks);
                    CHECK(std::max(found->most_sent(), found->most_received()) <= count * ranks);
                }
}

static void starts_follow_from_counts() {
    for (const Skew skew : skews) {
        const auto found = parts(Collective::all_to_all, skew, 5, 1000);
        for (uint32_t giver = 0; giver < 5; giver++) {
            uint64_t start = 0;
            for (uint32_t taker = 0; taker < 5; taker++) {
                CHECK_EQ(found->send_start(giver, taker), start);
                start += found->of(giver, taker);
            }
            CHECK_EQ(found->sent(giver), start);
        }
    }
    CHECK_EQ(parts(Collective::scatter, Skew::linear, 4, 10)->send_start(0, 2), 12U);
    CHECK_EQ(parts(Collective::gather, Skew::linear, 4, 10)->send_start(2, 0), 0U);
}

static void skews_are_as_named() {
    const auto linear = parts(Collective::all_gather, Skew::linear, 4, 10);
    for (uint32_t rank = 0; rank < 4; rank++) CHECK_EQ(linear->of(rank, rank), 4 * (rank + 1));
    CHECK_EQ(parts(Collective::reduce_scatter, Skew::one, 4, 10)->of(0, 0), 40U);
    // What the root has for itself would not travel.
    for (const Collective collective : {Collective::gather, Collective::scatter}) {
        const auto one = parts(collective, Skew::one, 4, 10, 3);
        CHECK_EQ(one->of(0, 0), 40U);
        CHECK_EQ(one->of(3, 3), 0U);
        CHECK_EQ(one->busiest(), 40U);
    }
    const auto spread = parts(Collective::all_to_all, Skew::linear, 4, 10);
    for (uint32_t giver = 0; giver < 4; giver++) CHECK_EQ(spread->of(giver, 1), 5U);
    const auto hot = parts(Collective::all_to_all, Skew::one, 4, 10);
    CHECK(hot->received(0) == 40 && hot->received(1) == 0 && hot->sent(1) == 10);
    const auto random = parts(Collective::all_to_all, Skew::random, 4, 1000);
    CHECK(random->of(0, 1) != random->of(1, 0) && random->of(0, 1) != random->of(2, 1));
}

static Operation v_form(Collective collective, Skew skew, uint64_t bytes, uint32_t ranks = 4) {
    PerfArguments arguments;
    arguments.collective = collective;
    arguments.pattern = Pattern::v_form;
    arguments.skew = skew;
    return operation_of(arguments, DataType::float32, RedOp::sum, 0, ranks, bytes);
}

static void equal_parts_are_measured_like_the_collective() {
    for (const VForm &form : v_forms) {
        const Operation equal = v_form(form.of, Skew::equal, 4096);
        const Operation usual = operation_of(form.of, DataType::float32, RedOp::sum, 0, 4, 4096);
        CHECK_EQ(equal.bytes(), usual.bytes());
        CHECK_EQ(equal.send_count(), usual.send_count());
        CHECK_EQ(equal.recv_count(), usual.recv_count());
        CHECK(std::abs(equal.busbw(1e-6) - usual.busbw(1e-6)) < 1e-9);
        CHECK_EQ(equal.has_in_place(), true);
        for (uint32_t rank = 0; rank < 4; rank++) {
            CHECK_EQ(equal.send_in_place_start(rank), usual.send_in_place_start(rank));
            CHECK_EQ(equal.recv_in_place_start(rank), usual.recv_in_place_start(rank));
            CHECK_EQ(equal.part_start(rank, 2), usual.part_start(rank, 2));
        }
    }
}

static void sizes_are_those_of_the_busiest_rank() {
    const Operation gather = v_form(Collective::all_gather, Skew::one, 4096);
    CHECK_EQ(gather.bytes(), 4096U);
    CHECK(gather.busbw(1e-6) == 4096 / 1e3);
    const Operation hot = v_form(Collective::all_to_all, Skew::one, 4096);
    CHECK_EQ(hot.bytes(), 4096U);
    CHECK(hot.busbw(1e-6) == 3072 / 1e3);
    CHECK(!v_form(Collective::all_to_all, Skew::linear, 4096).has_in_place());
    CHECK(v_form(Collective::gather, Skew::linear, 4096).has_in_place());
}

static void complex_values_are_two_reals() {
    for (const VForm &form : v_forms) {
        const auto elements = parts(form.of, Skew::linear, 3, 100);
        const auto reals = elements->in_reals(2);
        CHECK_EQ(reals->of(1, 2), 2 * elements->of(1, 2));
        CHECK_EQ(reals->send_start(1, 2), 2 * elements->send_start(1, 2));
        CHECK_EQ(reals->most_received(), 2 * elements->most_received());
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(parts_share_all_elements),
        QTEST(starts_follow_from_counts),
        QTEST(skews_are_as_named),
        QTEST(equal_parts_are_measured_like_the_collective),
        QTEST(sizes_are_those_of_the_busiest_rank),
        QTEST(complex_values_are_two_reals),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
