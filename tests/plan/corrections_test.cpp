// Tests Corrections of lib/plan/calibration: a factor is what was measured at that size, and is
// interpolated between measured sizes.
#include "tests/kit/qtest.hpp"

#include "plan/calibration.hpp"

#include <cmath>

using namespace qccl;

namespace {

Corrections::Calls calls(size_t algorithm, CodecWidth width = CodecWidth::none) {
    return {
        .collective = Collective::all_reduce, .algorithm = algorithms()[algorithm], .width = width};
}

} // namespace

static void nothing_measured_changes_nothing() {
    const Corrections none;
    CHECK(none.is_empty());
    for (const Algorithm &algorithm : algorithms())
        CHECK_EQ(none.of({.collective = Collective::broadcast, .algorithm = algorithm}, 4096), 1.0);
}

static void factors_follow_the_logarithm_of_the_size() {
    Corrections job;
    job.set(calls(1), 1, 4);  // 64 bytes
    job.set(calls(1), 3, 16); // 4096 bytes
    CHECK(!job.is_empty());
    for (const auto &[bytes, factor] :
         {std::pair<uint64_t, double>{0, 4}, {8, 4}, {64, 4}, {512, 8}, {4096, 16}, {1 << 30, 16}})
        CHECK(std::abs(job.of(calls(1), bytes) - factor) < 1e-6);
    const double between = job.of(calls(1), 100);
    CHECK(between > 4 && between < 8);
}

static void rows_do_not_mix() {
    Corrections job;
    job.set(calls(0, CodecWidth::narrow), 2, 3);
    CHECK_EQ(job.of(calls(0, CodecWidth::narrow), 512), 3.0);
    CHECK_EQ(job.of(calls(0), 512), 1.0);
    CHECK_EQ(job.of({.collective = Collective::all_gather,
                     .algorithm = algorithms()[0],
                     .width = CodecWidth::narrow},
                    512),
             1.0);
    CHECK_EQ(job.measured(calls(0, CodecWidth::narrow), 2), 3.0);
    CHECK_EQ(job.measured(calls(0, CodecWidth::narrow), 3), 0.0);
    CHECK_EQ(job.of(calls(0, CodecWidth::wide), 512), 1.0);
}

// An algorithm that was not measured is compared with the others by the largest measured factor.
static void what_was_not_measured_has_the_largest_factor() {
    Corrections job;
    job.set(calls(0), 2, 3);
    job.set(calls(1), 2, 5);
    job.set(calls(2), 2, 0.5);
    CHECK_EQ(job.of(calls(3), 512), 5.0);
    CHECK_EQ(job.of(calls(3, CodecWidth::wide), 512), 1.0);
    CHECK_EQ(job.of(calls(2), 512), 0.5);
}

// A variant that no calibration measures must not look faster than its plain form.
static void a_variant_has_the_factor_of_its_plain_form() {
    const auto by_all = parse_algorithm("ring:rings=all");
    const auto ring = parse_algorithm("ring");
    CHECK_OK(by_all);
    CHECK_OK(ring);
    Corrections job;
    job.set({.collective = Collective::all_reduce, .algorithm = *ring}, 2, 1.5);
    CHECK_EQ(job.of({.collective = Collective::all_reduce, .algorithm = *by_all}, 512), 1.5);
}

static void codecs_of_like_width_are_alike() {
    const auto width = [](const char *text) {
        const auto codec = parse_codec(text);
        CHECK_OK(codec);
        return width_of(*codec);
    };
    CHECK(width("none") == CodecWidth::none);
    for (const char *wide : {"int8", "bf16", "fp8e4m3", "minmax:bits=8"})
        CHECK(width(wide) == CodecWidth::wide);
    for (const char *narrow : {"int4", "int2", "mxfp4", "onebit", "topk"})
        CHECK(width(narrow) == CodecWidth::narrow);
}

static void all_algorithms_of_the_planner_have_rows() {
    Corrections job;
    const auto of = [](size_t i) { return calls(i, static_cast<CodecWidth>(i % 3)); };
    for (size_t i = 0; i < algorithms().size(); i++)
        job.set(of(i), 0, 1.0 + static_cast<double>(i));
    for (size_t i = 0; i < algorithms().size(); i++)
        CHECK_EQ(job.of(of(i), 8), 1.0 + static_cast<double>(i));
}

static void what_the_planner_does_not_choose_from_is_left_out() {
    auto other = parse_algorithm("hierarchy:inner=ring");
    CHECK_OK(other);
    Corrections job;
    job.set({.algorithm = *other}, 0, 2);
    CHECK(job.is_empty());
    CHECK_EQ(job.of({.algorithm = *other}, 8), 1.0);
}

static void a_factor_is_bounded() {
    Corrections job;
    job.set(calls(0), 0, 1e9);
    job.set(calls(0), 1, 1e-9);
    CHECK_EQ(job.measured(calls(0), 0), Corrections::most);
    CHECK(std::abs(job.measured(calls(0), 1) - Corrections::least) < 1e-6);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(nothing_measured_changes_nothing),
        QTEST(factors_follow_the_logarithm_of_the_size),
        QTEST(rows_do_not_mix),
        QTEST(what_was_not_measured_has_the_largest_factor),
        QTEST(a_variant_has_the_factor_of_its_plain_form),
        QTEST(codecs_of_like_width_are_alike),
        QTEST(all_algorithms_of_the_planner_have_rows),
        QTEST(what_the_planner_does_not_choose_from_is_left_out),
        QTEST(a_factor_is_bounded),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
