// Tests perf/commands/speed_fit: the fit finds the speeds of a machine from times that the cost
// model computes, and one delayed call does not distort the result.
#include "tests/kit/qtest.hpp"

#include "engine/compile/translate.hpp"
#include "perf/commands/calibration_run.hpp"

#include <cmath>

using namespace qccl;
using namespace qccl::perf;

namespace {

struct Job {
    std::vector<RankLocation> spots;
    RankTopology places;
    PlannerInputs inputs;

    explicit Job(std::vector<RankLocation> where, double ranks_per_core)
        : spots(std::move(where)), places(spots) {
        const Chunking cut = chunking_by({}, places.ranks(), places.hosts().groups() > 1);
        inputs.speeds = cost_model_by({}, ranks_per_core, CodecRates::of_tier("avx2"));
        inputs.limits = inputs.usual_limits = limits_of(cut);
        if (places.hosts().groups() == 1) inputs.speeds.eager_bytes = 32 << 10;
    }

    // Returns probes whose measured times are the predictions by `speeds`.
    std::vector<Probe> probes(const CostModel &speeds) const {
        std::vector<Probe> all;
        StepCountCache counts;
        for (const char *name : {"oneshot", "direct", "ring", "tree"})
            for (uint64_t bytes = 64; bytes <= uint64_t{16} << 20; bytes *= 8) {
                Problem problem;
                problem.count = bytes / 4;
                problem.ranks = places.ranks();
                problem.places = &places;
                const auto algorithm = parse_algorithm(name);
                CHECK_OK(algorithm);
                auto probe = probe_of(problem, *algorithm, 1, inputs, counts);
                CHECK_OK(probe);
                probe->measured_ns = probe->predicted_ns(speeds);
                all.push_back(std::move(*probe));
            }
        return all;
    }
};

double worst(const std::vector<Probe> &probes, const CostModel &speeds) {
    double most = 0;
    for (const Probe &probe : probes)
        most = std::max(most, std::abs(std::log(probe.predicted_ns(speeds) / probe.measured_ns)));
    return most;
}

} // namespace

static void the_speeds_of_one_host_are_found() {
    const Job job({{0, 0, 0}, {0, 0, 0}, {0, 0, 0}}, 1);
    CostModel truth = job.inputs.speeds;
    truth.local.alone = {.latency_ns = 2300, .message_ns = 60, .byte_ns = 0.02};
    truth.eager.alone.latency_ns = 700;
    truth.copy.points[0].bytes_per_ns = 11;
    truth.copy.points[2].bytes_per_ns = 3;
    const auto probes = job.probes(truth);
    constexpr std::string_view groups[] = {"near alone", "eager alone", "copy"};
    const SpeedFit fit = fit_speeds(probes, job.inputs.speeds, figures_of(groups));
    CHECK(worst(probes, job.inputs.speeds) > 0.5);
    CHECK(worst(probes, fit.speeds) < 0.15);
    CHECK_EQ(fit.within, 1.0);
    CostModel applied = job.inputs.speeds;
    fit.figures.apply({}, applied);
    CHECK(applied == fit.speeds);
}

static void the_rate_of_a_line_is_found() {
    const Job job({{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {0, 3, 0}}, 2);
    constexpr std::string_view groups[] = {"far shared", "far"};
    for (const double rate : {0.03, 0.119, 1.2, 20.0})
        for (const double burst : {0.0, 3e5}) {
            CostModel truth = job.inputs.speeds;
            truth.remote_bytes_per_ns = rate;
            truth.remote_burst_bytes = burst;
            truth.remote.shared = {.latency_ns = 30000, .message_ns = 4000, .byte_ns = 0.1};
            auto probes = job.probes(truth);
            probes[9].measured_ns *= 20; // a delayed call
            const SpeedFit fit = fit_speeds(probes, job.inputs.speeds, figures_of(groups));
            if (rate < 2) CHECK(std::abs(fit.speeds.remote_bytes_per_ns / rate - 1) < 0.1);
            probes.erase(probes.begin() + 9);
            CHECK(worst(probes, fit.speeds) < 0.2);
        }
}

static void what_no_probe_depends_on_is_left_out() {
    const Job job({{0, 0, 0}, {0, 0, 0}}, 1);
    const auto probes = job.probes(job.inputs.speeds);
    constexpr std::string_view groups[] = {"near shared", "far alone"};
    const SpeedFit fit = fit_speeds(probes, job.inputs.speeds, figures_of(groups));
    CHECK(fit.speeds == job.inputs.speeds && fit.figures.is_empty());
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(the_speeds_of_one_host_are_found),
        QTEST(the_rate_of_a_line_is_found),
        QTEST(what_no_probe_depends_on_is_left_out),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
