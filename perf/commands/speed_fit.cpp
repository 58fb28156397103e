// Implements calibration_run.hpp: coordinate descent over the figures, from several start values.
#include "perf/commands/calibration_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace qccl::perf {

namespace {

// The loss of a probe depends on the logarithm of predicted over measured time, so that a call of a
// microsecond counts as much as a call of a second. It is squared up to a factor of 1.5 and linear
// beyond, so that a single delayed call does not distort all figures.
double loss_of(const Probe &probe, const CostModel &speeds) {
    constexpr double usual = 0.4; // about the logarithm of 1.5
    const double error = std::abs(std::log(probe.predicted_ns(speeds) / probe.measured_ns));
    return error < usual ? error * error : usual * (2 * error - usual);
}

class Descent {
public:
    Descent(std::span<const Probe> probes, const CostModel &start, std::span<const size_t> figures)
        : probes_(probes), start_(start), speeds_(start), figures_(figures), loss_(loss(start)) {}

    // Multiplies and divides one figure after the other by ever smaller factors, as long as that
    // reduces the loss.
    void run() {
        constexpr std::array factors = {4.0, 2.0, 1.4, 1.15, 1.05, 1.02};
        constexpr int most_rounds = 60;
        for (const double factor : factors)
            for (int round = 0; round < most_rounds && improve_all(factor); round++) {}
    }

    double loss() const { return loss_; }
    const CostModel &speeds() const { return speeds_; }

private:
    // Adds a penalty for the distance from the start, so that figures on which the probes hardly
    // depend stay near it. A factor of e from the start counts as much as an error of 7 % in one
    // probe.
    double loss(CostModel speeds) const {
        constexpr double weight = 0.005;
        double sum = 0;
        for (const Probe &probe : probes_) sum += loss_of(probe, speeds);
        CostModel start = start_;
        for (const size_t figure : figures_) {
            const double now = of(figure, speeds), before = of(figure, start);
            if (now <= 0 || before <= 0) continue;
            const double distance = std::log(now / before);
            sum += weight * distance * distance;
        }
        return sum;
    }

    bool improve_all(double factor) {
        bool has_improved = false;
        for (const size_t figure : figures_)
            if (improve(figure, factor) || improve(figure, 1 / factor)) has_improved = true;
        return has_improved;
    }

    bool improve(size_t figure, double factor) {
        const CalibratedFigure &row = calibrated_figures()[figure];
        CostModel tried = speeds_;
        double &value = row.of(tried);
        value = std::clamp(value * factor, row.least, row.most);
        const double loss_then = loss(tried);
        if (loss_then >= loss_ - 1e-9) return false;
        speeds_ = tried;
        loss_ = loss_then;
        return true;
    }

    static double of(size_t figure, CostModel &speeds) {
        return calibrated_figures()[figure].of(speeds);
    }

    const std::span<const Probe> probes_;
    const CostModel start_;
    CostModel speeds_;
    const std::span<const size_t> figures_;
    double loss_;
};

// Returns whether any probe depends on the figure.
bool counts(size_t figure, std::span<const Probe> probes, const CostModel &speeds) {
    const CalibratedFigure &row = calibrated_figures()[figure];
    CostModel other = speeds;
    double &value = row.of(other);
    value = std::min(2 * value + (row.most < 1 ? 0 : 1), row.most);
    return std::ranges::any_of(probes, [&](const Probe &probe) {
        return probe.predicted_ns(other) != probe.predicted_ns(speeds);
    });
}

} // namespace

double rounded(double figure) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", figure);
    return std::strtod(text, nullptr);
}

Result<Probe> probe_of(const Problem &problem, const Algorithm &algorithm, double measured_ns,
                       const PlannerInputs &inputs, StepCountCache &counts) {
    QCCL_TRY(const Plan plan, choose(problem, inputs, algorithm, &counts));
    Probe probe{.problem = problem, .algorithm = algorithm, .measured_ns = measured_ns};
    probe.problem.codec = plan.codec;
    QCCL_TRY(probe.step_counts, counted(algorithm, problem, counts));
    probe.geometry = plan.geometry;
    return probe;
}

// The burst size of a link is either nothing or large, and no small step leads from one to the
// other. So the descent starts from each of several burst sizes.
SpeedFit fit_speeds(std::span<const Probe> probes, const CostModel &start,
                    std::span<const size_t> figures) {
    constexpr std::array bursts = {0.0, 65536.0, 262144.0, 1048576.0, 4194304.0};
    const auto rows = calibrated_figures();
    const bool fits_burst = std::ranges::any_of(
        figures, [&](size_t figure) { return rows[figure].key == "burst_bytes"; });
    std::optional<Descent> best;
    for (const double burst : bursts) {
        if (!fits_burst && burst != 0) break;
        CostModel begin = start;
        if (fits_burst) begin.remote_burst_bytes = burst;
        Descent descent(probes, begin, figures);
        descent.run();
        if (!best || descent.loss() < best->loss()) best.emplace(descent);
    }
    SpeedFit fit{.figures = {}, .speeds = best->speeds()};
    for (const size_t figure : figures) {
        double &value = rows[figure].of(fit.speeds);
        value = rounded(value);
        if (counts(figure, probes, fit.speeds)) fit.figures.set(figure, value);
    }
    constexpr double fifth = 0.2;
    const auto close = std::ranges::count_if(probes, [&](const Probe &probe) {
        const double ratio = probe.predicted_ns(fit.speeds) / probe.measured_ns;
        return ratio > 1 - fifth && ratio < 1 + fifth;
    });
    if (!probes.empty())
        fit.within = static_cast<double>(close) / static_cast<double>(probes.size());
    return fit;
}

std::vector<size_t> figures_of(std::span<const std::string_view> groups) {
    std::vector<size_t> figures;
    const auto rows = calibrated_figures();
    for (size_t i = 0; i < rows.size(); i++)
        if (std::ranges::find(groups, rows[i].group) != groups.end()) figures.push_back(i);
    return figures;
}

} // namespace qccl::perf
