// Tests lib/plan: a codec is used between hosts only if it pays, independent of how calls are cut
// into segments, and its loss is predicted.
#include "tests/kit/plan_kit.hpp"

#include "codec/codec_names.hpp"
#include "codec/error_model.hpp"

#include "device/kernels.hpp"

#include <algorithm>
#include <cstring>

using namespace qccl;
using namespace qtest;

// Between hosts a codec is used from some size on; a faster link raises that size.
static void a_codec_is_used_where_it_pays() {
    const RankTopology places = places_on({0, 1, 2, 3});
    const auto of_bytes = [&](uint64_t bytes, const char *codec, const PlannerInputs &with) {
        Problem problem = all_reduce(bytes / 4, 4, DataType::float32, codec);
        problem.places = &places;
        const auto plan = choose(problem, with);
        CHECK_OK(plan);
        if (plan->codec.is_lossless()) {
            Problem without = problem;
            without.codec = {};
            const auto same = choose(without, with);
            CHECK_OK(same);
            CHECK(plan->algorithm == same->algorithm && plan->cost.time_ns == same->cost.time_ns);
            const auto text = explain_in_text(problem, with);
            CHECK_OK(text);
            CHECK(text->find("travels with none: the codec would not make it 1.25 times as fast") !=
                  std::string::npos);
        }
        return plan->codec;
    };
    for (const char *name : {"int8", "int4"}) {
        CHECK(of_bytes(64, name, inputs).is_lossless());
        CHECK(of_bytes(64 << 10, name, inputs) == codec(name));
        CHECK(of_bytes(64 << 20, name, inputs) == codec(name));
    }
    CHECK(of_bytes(64, "int8:min=0", inputs) == codec("int8"));
    Settings settings;
    settings.link_latency = std::chrono::microseconds(2);
    settings.link_rate = 50'000'000'000; // 400 Gbit/s
    PlannerInputs fast = inputs;
    fast.speeds = cost_model_by(settings, 1, inputs.speeds.codec_rates);
    CHECK_EQ(fast.speeds.remote.alone.latency_ns, 2000.0);
    CHECK_EQ(fast.speeds.remote_bytes_per_ns, 50.0);
    CHECK(of_bytes(4 << 10, "int8", fast).is_lossless());
    CHECK(of_bytes(4 << 10, "int8", inputs) == codec("int8"));
    CHECK(chosen(all_reduce(16, 4, DataType::float32, "int8")).codec == codec("int8"));
}

// With an unknown rate no gain can be predicted, so the planner uses no lossy codec between hosts.
// An explicit min= needs no prediction.
static void unknown_lines_carry_values_as_they_are() {
    const RankTopology places = places_on({0, 1, 2, 3});
    PlannerInputs unknown = inputs;
    unknown.speeds = cost_model_by({}, 1, inputs.speeds.codec_rates);
    CHECK(!unknown.speeds.is_remote_rate_known());
    for (const char *name : {"int4", "int4:min=0", "auto:nmse=1e-2", "auto:bits=4"}) {
        Problem problem = all_reduce(mebibyte, 4, DataType::float32, name);
        problem.places = &places;
        const auto plan = choose(problem, unknown);
        CHECK_OK(plan);
        CHECK_EQ(plan->codec.is_lossless(), !problem.codec.min_bytes);
        const auto text = explain_in_text(problem, unknown);
        CHECK_OK(text);
        CHECK_EQ(text->find("the rate between hosts is unknown") != std::string::npos,
                 !problem.codec.min_bytes);
        problem.places = nullptr; // on one host the rate between hosts does not matter
        const auto local = choose(problem, unknown);
        CHECK_OK(local);
        CHECK_EQ(local->codec.is_lossless(), std::strcmp(name, "auto:nmse=1e-2") == 0);
    }
}

// Scalar kernels encode onebit and terngrad, on four hosts that share a machine of two cores, more
// slowly than the links carry the plain values. They pay if every host has its own cores, if the
// links are slower, or with vectors.
static void slow_codecs_go_lossless_where_cores_are_shared() {
    const RankTopology places = places_on({0, 1, 2, 3});
    const auto codec_by = [&](const char *name, const CostModel &speeds) {
        PlannerInputs with = inputs;
        with.speeds = speeds;
        Problem problem = all_reduce(mebibyte, 4, DataType::float32, name);
        problem.places = &places;
        const auto plan = choose(problem, with);
        CHECK_OK(plan);
        return plan->codec;
    };
    Settings gigabit;
    gigabit.link_rate = 125'000'000;
    for (const char *tier : {"scalar", "sse4", "avx2", "avx512", "neon"}) {
        const CostModel alone = cost_model_by(gigabit, 1, CodecRates::of_tier(tier)),
                        shared = cost_model_by(gigabit, 2, CodecRates::of_tier(tier));
        const bool is_scalar = std::strcmp(tier, "scalar") == 0;
        for (const char *name : {"onebit", "terngrad"}) {
            CHECK_EQ(codec_by(name, shared).is_lossless(), is_scalar);
            CHECK(codec_by((std::string(name) + ":min=0").c_str(), shared) == codec(name));
            CostModel slow = shared;
            slow.remote_bytes_per_ns /= 100;
            CHECK(codec_by(name, slow) == codec(name));
        }
        CHECK(codec_by("topk", alone) == codec("topk"));
        if (!is_scalar) CHECK(codec_by("int8", shared) == codec("int8"));
    }
}

// Rates exist for every codec in both roundings on every tier, and a job uses those of its slowest
// rank.
static void codec_rates_are_known() {
    const CodecRates scalar = CodecRates::of_tier("scalar"), avx2 = CodecRates::of_tier("avx2");
    for (const char *const tier : tier_names) {
        const CodecRates rates = CodecRates::of_tier(tier);
        for (const CodecName &known : codec_names())
            for (const char *rounding : {"", ":round=stochastic", ":round=dither"}) {
                const auto each = parse_codec(std::string(known.name) + rounding);
                if (!each || each->is_lossless()) continue;
                const CodecRate &rate = rates.of(*each);
                CHECK(rate.encode > 0 && rate.decode > 0 && rate.decode_add > 0);
                CHECK(rate.encode < 200); // dummy reads only a quarter of the values
            }
    }
    CHECK(CodecRates::of_tier("another") == scalar);
    CodecRates both = avx2;
    both.slow_down_to(scalar);
    CHECK_EQ(both.of(codec("int8")).encode, scalar.of(codec("int8")).encode);
    CHECK_EQ(both.of(codec("onebit")).decode,
             std::min(scalar.of(codec("onebit")).decode, avx2.of(codec("onebit")).decode));
    // A block size that no vector code handles is as slow as the scalar code.
    for (const char *fast : {"int8:block=8", "int8:block=16", "int8:block=96"})
        CHECK_EQ(avx2.of(codec(fast)).encode, avx2.of(codec("int8")).encode);
    for (const char *slow : {"int8:block=4", "int8:block=12", "int8:block=20"})
        CHECK_EQ(avx2.of(codec(slow)).encode, scalar.of(codec(slow)).encode);
    CHECK_EQ(avx2.of(codec("onebit:bucket=100")).encode, scalar.of(codec("onebit")).encode);
    CHECK_EQ(avx2.of(codec("onebit:bucket=96")).encode, avx2.of(codec("onebit")).encode);
}

// Settings that cut calls differently change neither algorithm nor codec, and so no results.
static void choices_do_not_depend_on_how_calls_are_cut() {
    const RankTopology places = places_on({0, 1, 2, 3});
    size_t differing = 0; // how often a choice by the cut itself would differ
    const auto check = [&](const Problem &problem, const Algorithm &named,
                           const PlannerInputs &with) {
        PlannerInputs by_cut = with;
        by_cut.usual_limits = with.limits;
        const auto usual = choose(problem, inputs, named), cut = choose(problem, with, named),
                   other = choose(problem, by_cut, named);
        CHECK_OK(usual);
        CHECK_OK(cut);
        CHECK_OK(other);
        CHECK(cut->algorithm == usual->algorithm);
        CHECK(cut->codec == usual->codec);
        differing += other->codec != usual->codec;
    };
    for (const size_t segment : {size_t{1} << 10, size_t{16} << 10, 4 * mebibyte}) {
        PlannerInputs with = inputs;
        with.limits.segment_bytes = segment;
        with.limits.max_lanes = segment > mebibyte ? 8 : 1;
        for (uint64_t number = 0; number < 4 * 9 * 6 * 2; number++) {
            const char *const codecs[] = {"none", "bf16", "int8", "int4", "onebit", "topk"};
            Problem problem = all_reduce(uint64_t{16} << 2 * (number / 4 % 9), 4, DataType::float32,
                                         codecs[number / 36 % 6]);
            problem.collective = static_cast<Collective>(number % 4);
            if (number < 216) problem.places = &places;
            for (const char *named : {"direct", "ring"}) check(problem, algorithm_of(named), with);
            check(problem, {}, with);
        }
    }
    CHECK(differing > 0);
}

// A codec without added noise never loses more than the whole signal.
static void no_more_is_lost_than_there_is() {
    for (const uint32_t ranks : {2U, 4U, 16U, 100U})
        for (const Algorithm &algorithm : algorithms())
            for (const char *name : {"topk", "topk:ratio=0.1", "onebit"}) {
                const Problem problem = all_reduce(1 << 20, ranks, DataType::float32, name);
                if (!algorithm.has(problem.collective)) continue;
                const auto candidates = find_candidates(problem, inputs);
                CHECK_OK(candidates);
                for (const Candidate &candidate : *candidates) {
                    if (candidate.plan.algorithm != algorithm) continue;
                    const double nmse = predicted_nmse(candidate.plan, problem.type);
                    CHECK(nmse <= 1);
                    CHECK(nmse >= unit_nmse(problem.codec, problem.type) * (1 - 1e-9));
                }
            }
}

// A lossless call stays lossless, also with an inner codec in the algorithm's spec.
static void an_inner_codec_may_lose_only_where_the_call_does() {
    const RankTopology places = places_on({0, 0, 1, 1});
    for (const auto &[codec, inner] : {std::pair("none", "none"), std::pair("int8", "int4")}) {
        Problem problem = all_reduce(1 << 20, 4, DataType::float32, codec);
        problem.places = &places;
        const Plan plan = chosen(problem, "hierarchy:inner_codec=int4");
        CHECK_EQ(spec(plan.inner_codec), std::string(inner));
        CHECK_EQ(plan.cost.inner_noise.first != 0, !plan.inner_codec.is_lossless());
    }
    CHECK(chosen(all_reduce(1, 4), "hierarchy").inner_codec.is_lossless());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_codec_is_used_where_it_pays),
        QTEST(slow_codecs_go_lossless_where_cores_are_shared),
        QTEST(unknown_lines_carry_values_as_they_are),
        QTEST(codec_rates_are_known),
        QTEST(choices_do_not_depend_on_how_calls_are_cut),
        QTEST(no_more_is_lost_than_there_is),
        QTEST(an_inner_codec_may_lose_only_where_the_call_does),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
