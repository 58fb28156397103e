// Implements calibration_run.hpp. Each rank sends its host, its machine and its cores to all
// others, and all compute the same machine from them. All ranks measure bands of sizes; then rank 0
// fits the cost model and the correction factors.
#include "perf/commands/calibration_run.hpp"

#include "base/settings.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/info/simulated_job.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/codec_bench.hpp"

#include <algorithm>
#include <climits>
#include <map>
#include <span>

#include <sched.h>
#include <unistd.h>

namespace qccl::perf {

// ---- The machine of the ranks

namespace {

struct RankFacts {
    uint64_t host = 0, machine = 0; // hosts may be containers on one machine
    cpu_set_t cores{};
};

Result<RankFacts> facts_of_this_rank(const Settings &settings) {
    RankFacts facts;
    QCCL_TRY(const std::string host, host_identity(settings));
    QCCL_TRY(const std::string boot, boot_id());
    facts.host = hash_text(host);
    facts.machine = hash_text(boot.empty() ? host : boot);
    CPU_ZERO(&facts.cores);
    // The call fails on a machine with more cores than a cpu_set_t can hold; ranks then count as
    // not sharing cores.
    (void)sched_getaffinity(0, sizeof facts.cores, &facts.cores);
    return facts;
}

double most_ranks_per_core(const std::vector<RankFacts> &all) {
    double most = 1;
    for (const RankFacts &each : all) {
        const auto sharers = std::ranges::count_if(all, [&](const RankFacts &other) {
            cpu_set_t common;
            CPU_AND(&common, &each.cores, &other.cores);
            return other.machine == each.machine && CPU_COUNT(&common) > 0;
        });
        if (const int cores = CPU_COUNT(&each.cores); cores > 0)
            most = std::max(most, static_cast<double>(sharers) / cores);
    }
    return most;
}

// Returns for each host or machine the cores that its ranks may run on.
std::map<uint64_t, cpu_set_t> cores_by(const std::vector<RankFacts> &all,
                                       uint64_t RankFacts::*place) {
    std::map<uint64_t, cpu_set_t> cores;
    for (const RankFacts &each : all) {
        cpu_set_t &known = cores.try_emplace(each.*place, cpu_set_t{}).first->second;
        CPU_OR(&known, &known, &each.cores);
    }
    return cores;
}

int least_of(const std::map<uint64_t, cpu_set_t> &cores) {
    int least = INT_MAX;
    for (const auto &[number, known] : cores) least = std::min(least, CPU_COUNT(&known));
    return least;
}

int sum_of(const std::map<uint64_t, cpu_set_t> &cores) {
    int sum = 0;
    for (const auto &[number, known] : cores) sum += CPU_COUNT(&known);
    return sum;
}

// Sets machine.cores to the cores of the host that has the fewest. If all hosts are on one machine
// and share cores, sets it to the cores of all hosts together.
void take_cores(const std::vector<RankFacts> &all, Machine &machine) {
    const auto of_hosts = cores_by(all, &RankFacts::host),
               of_machines = cores_by(all, &RankFacts::machine);
    machine.hosts_share_cores = of_machines.size() == 1 && sum_of(of_hosts) > sum_of(of_machines);
    const int cores = least_of(machine.hosts_share_cores ? of_machines : of_hosts);
    if (cores > 0) machine.cores = cores;
}

} // namespace

Result<Machine> machine_of(RankGroup &rank_group) {
    Machine machine;
    QCCL_TRY(machine.settings, read_settings(environ));
    QCCL_TRY(const RankFacts mine, facts_of_this_rank(machine.settings));
    QCCL_TRY(const std::vector<RankFacts> all, gather(rank_group, mine));
    std::map<uint64_t, uint32_t> hosts;
    std::vector<RankLocation> spots;
    for (const RankFacts &each : all) {
        const auto next = static_cast<uint32_t>(hosts.size());
        const uint32_t host = hosts.try_emplace(each.host, next).first->second;
        spots.push_back({.node = 0, .host = host, .rack = 0});
    }
    machine.ranks = rank_group.size();
    machine.ranks_per_core = most_ranks_per_core(all);
    take_cores(all, machine);
    if (hosts.size() > 1) {
        machine.places = std::make_shared<const RankTopology>(std::move(spots));
        machine.remote = RemoteLink();
    }
    return machine;
}

// ---- Calibration

namespace {

constexpr uint64_t kibibyte = 1024, mebibyte = 1024 * kibibyte;

// A range of sizes to measure, all of them in Corrections::sizes. Small calls vary from one to the
// next when ranks share cores, and the cores of a virtual machine may share caches in one second
// and not in the next. A band is therefore measured in several rounds, with all other bands in
// between, to show the usual time.
struct Band {
    uint64_t least, most, factor;
    uint32_t iterations, rounds;
    bool has_remote_codecs; // measure codecs between hosts too; smaller calls do not use them there
};
constexpr Band bands[] = {{8, 512, 8, most_calibrated_iterations, most_calibrated_rounds, false},
                          {4 * kibibyte, 64 * kibibyte, 4, 100, most_calibrated_rounds, true},
                          {256 * kibibyte, mebibyte, 4, 30, most_calibrated_rounds, true},
                          {4 * mebibyte, 4 * mebibyte, 4, 5, 1, true},
                          {16 * mebibyte, 16 * mebibyte, 4, 2, 1, true}};
// Large calls that take long wait for a slow link and vary little. The other large calls depend on
// the speed of memory and processor at that moment, and are slower outside the caches than inside.
constexpr Band bands_if_fast[] = {{4 * mebibyte, 16 * mebibyte, 4, 2, 2, true},
                                  {64 * mebibyte, 64 * mebibyte, 4, 2, 2, true}};
// Limit for any call in the first bands; only their calls of 16 MiB can come near it.
constexpr double most_fast_ns = 1e8;
constexpr uint32_t most_fast_ranks = 8; // more ranks would need more than 1 GiB

bool has_neighbours(const Machine &machine) { return machine.hosts() < machine.ranks; }

// Returns the algorithms that the planner chooses from.
std::vector<std::string> algorithms_of(Collective collective, const Machine &machine) {
    std::vector<std::string> names;
    for (const Algorithm &algorithm : algorithms()) {
        const bool needs_hosts = algorithm.row().inner_noise != nullptr;
        if (algorithm.has(collective) && (machine.hosts() > 1 || !needs_hosts))
            names.push_back(spec(algorithm));
    }
    return names;
}

// Arguments for all algorithms with one codec at the sizes of a band.
Result<PerfArguments> arguments_of(Collective collective, const Band &band, std::string_view codec,
                                   const Machine &machine) {
    PerfArguments arguments;
    arguments.collective = collective;
    arguments.min_bytes = band.least;
    arguments.max_bytes = band.most;
    arguments.step_factor = band.factor;
    arguments.iterations = band.iterations;
    arguments.algorithms = algorithms_of(collective, machine);
    QCCL_TRY(Codec parsed, parse_codec(codec));
    if (!parsed.is_lossless()) parsed.min_bytes = 0;
    arguments.codecs = {parsed};
    arguments.has_lossless_beside = false;
    arguments.checks = 0;
    arguments.ranks = machine.ranks;
    return arguments;
}

// Small calls show the cost of messages, and large calls the cost of bytes. Algorithms with many
// and with few rounds, messages and bytes separate the two costs.
Result<std::vector<PerfArguments>>
sweeps_of(std::span<const Band> these, const CalibrationExtent &extent, const Machine &machine) {
    std::vector<PerfArguments> sweeps;
    for (uint32_t round = 0; round < extent.rounds; round++)
        for (const Collective collective : value_collectives)
            for (const Band &band : these)
                for (const std::string_view codec : width_codecs) {
                    const bool is_lossless = codec == width_codecs.front();
                    const bool has_codecs = band.has_remote_codecs || machine.hosts() == 1;
                    if (round >= band.rounds || (!is_lossless && !has_codecs) ||
                        band.least > extent.largest)
                        continue;
                    QCCL_TRY(PerfArguments sweep, arguments_of(collective, band, codec, machine));
                    sweep.max_bytes = std::min(band.most, extent.largest);
                    sweep.iterations = std::min(band.iterations, extent.iterations);
                    sweeps.push_back(std::move(sweep));
                }
    return Result<std::vector<PerfArguments>>(std::move(sweeps));
}

// The times of one call from all rounds.
struct MeasuredCall {
    Operation operation;
    Codec codec;
    Algorithm algorithm;
    std::vector<double> in_place_ns, out_of_place_ns;

    double in_place() const { return statistics(in_place_ns).median; }
    double out_of_place() const { return statistics(out_of_place_ns).median; }
};

// Returns the median, which occasional disturbances do not change. Broadcasts use the sustained
// time instead, because the root waits for no other rank and its median says nothing.
double measured_ns(const Row &row, const Measurement &measurement) {
    constexpr double microsecond = 1000;
    const bool runs_ahead = !row_of(row.operation.collective).needs_all_ranks;
    return microsecond * (runs_ahead ? measurement.sustained_us : measurement.time_us.median);
}

Result<Probe> probe_of_call(const MeasuredCall &call, const Machine &machine,
                            const PlannerInputs &inputs, StepCountCache &counts) {
    Problem problem;
    problem.collective = call.operation.collective;
    problem.count = call.operation.count;
    problem.ranks = call.operation.ranks;
    problem.type = call.operation.type;
    problem.codec = call.codec;
    problem.places = machine.places.get();
    return probe_of(problem, call.algorithm, (call.in_place() + call.out_of_place()) / 2, inputs,
                    counts);
}

// Records the factor under the size that was requested. Equal parts for all ranks may add up to
// slightly less than that size, so this is the smallest listed size that holds the call.
void set_factor(Corrections &job, const Problem &problem, const Algorithm &algorithm,
                double factor) {
    const auto &sizes = Corrections::sizes;
    const uint64_t bytes = vector_bytes(problem);
    const auto *const size =
        std::ranges::find_if(sizes, [&](uint64_t each) { return bytes <= each; });
    if (size != sizes.end())
        job.set({.collective = problem.collective,
                 .algorithm = algorithm,
                 .width = width_of(problem.codec)},
                static_cast<size_t>(size - sizes.begin()), rounded(factor));
}

std::vector<std::string_view> groups_of(const Machine &machine, bool measures_copies) {
    const bool is_shared = machine.ranks_per_core > 1;
    std::vector<std::string_view> groups;
    if (has_neighbours(machine)) groups.emplace_back(is_shared ? "near shared" : "near alone");
    if (machine.hosts() == 1) {
        groups.emplace_back(is_shared ? "eager shared" : "eager alone");
        if (measures_copies) groups.emplace_back("copy");
    } else {
        groups.emplace_back(is_shared ? "far shared" : "far alone");
        groups.emplace_back("far");
    }
    return groups;
}

Result<CodecRate> rate_of(const Codec &codec) {
    constexpr uint64_t bytes = 8 * mebibyte; // the size at which the built-in rates were measured
    const auto speeds =
        measure_codec(codec, DataType::float32, best_kernels(), BenchPlace::stream,
                      {.repetitions = 3, .bytes = bytes, .values = SourceValues::even});
    const auto of = [&](BenchOperation operation) {
        return static_cast<float>(
            rounded(speeds[static_cast<size_t>(operation)].gigabytes_per_second));
    };
    return CodecRate{of(BenchOperation::encode), of(BenchOperation::decode),
                     of(BenchOperation::decode_add)};
}

bool has_copies(const Calibration &known) {
    constexpr std::string_view copies[] = {"copy"};
    return std::ranges::all_of(figures_of(copies),
                               [&](size_t figure) { return known.has(figure); });
}

class Run {
public:
    Run(RankGroup &rank_group, qcclComm_t comm, const Machine &machine, const Calibration &known,
        const CalibrationExtent &extent, const TellStep &tell)
        : rank_group_(rank_group), comm_(comm), machine_(machine), known_(known), extent_(extent),
          tell_(tell) {}

    // All ranks measure the calls. Rank 0 alone measures the codecs and then fits the figures.
    Result<Calibrated> measure() {
        QCCL_TRY(measure_calls());
        Calibrated found;
        if (rank_group_.rank() == 0) {
            QCCL_TRY(measure_codecs(found));
            QCCL_TRY(fit(found));
            QCCL_TRY(simulate_calls(found));
        }
        QCCL_TRY(rank_group_.barrier());
        return found;
    }

private:
    Done measure_calls() {
        // Ranks that are started by hand may say different extents; rank 0 decides for all.
        QCCL_TRY(const std::vector<CalibrationExtent> extents, gather(rank_group_, extent_));
        extent_ = extents.front();
        steps_ += rated_codecs().size();
        QCCL_TRY(measure_bands(bands));
        // Ranks measure different times, so rank 0 decides for all.
        QCCL_TRY(const std::vector<uint8_t> has_slow_wire,
                 gather(rank_group_, uint8_t{waits_for_wire()}));
        const bool is_slow = machine_.ranks > most_fast_ranks || has_slow_wire.front();
        return is_slow ? Done() : measure_bands(bands_if_fast);
    }

    // Returns whether a lossless ring takes longer than memory and processors would. With a slow
    // link no algorithm is much faster than that ring.
    bool waits_for_wire() const {
        if (machine_.hosts() == 1) return false;
        const double share =
            std::min(1.0, static_cast<double>(extent_.largest) / (16.0 * mebibyte));
        return std::ranges::any_of(calls_, [&](const MeasuredCall &call) {
            return call.codec.is_lossless() && spec(call.algorithm) == "ring" &&
                   call.out_of_place() > share * most_fast_ns;
        });
    }

    Done measure_bands(std::span<const Band> these) {
        QCCL_TRY(const RankDevice device, RankDevice::open("host"));
        const auto source = make_gaussian(1);
        QCCL_TRY(const std::vector<PerfArguments> sweeps, sweeps_of(these, extent_, machine_));
        for (const PerfArguments &sweep : sweeps) steps_ += sweep_points(sweep);
        Done kept;
        const ProgressListener listener{
            .progress = [this](uint64_t, const std::string &what) { step(what); },
            .row =
                [&](const Row &row) {
                    if (kept && row.operation.count > 0) kept = keep(row);
                },
            .note = [](const std::string &) {}};
        for (const PerfArguments &sweep : sweeps)
            QCCL_TRY(run_benchmark({.rank_group = rank_group_,
                                    .comm = comm_,
                                    .source = *source,
                                    .arguments = sweep,
                                    .device = device},
                                   listener));
        return kept;
    }

    Done keep(const Row &row) {
        QCCL_TRY(const Algorithm algorithm, parse_algorithm(row.algorithm));
        const auto is_same = [&](const MeasuredCall &call) {
            return call.operation == row.operation && call.codec == row.codec &&
                   call.algorithm == algorithm;
        };
        auto known = std::ranges::find_if(calls_, is_same);
        if (known == calls_.end())
            known = calls_.insert(known, {.operation = row.operation,
                                          .codec = row.codec,
                                          .algorithm = algorithm,
                                          .in_place_ns = {},
                                          .out_of_place_ns = {}});
        known->in_place_ns.push_back(measured_ns(row, row.in_place));
        known->out_of_place_ns.push_back(measured_ns(row, row.out_of_place));
        return {};
    }

    // The machine without the link rate and latency that the user has set, because the result must
    // not depend on them.
    Machine unsaid() const {
        Machine machine = machine_;
        machine.settings.link_rate.reset();
        machine.settings.link_latency.reset();
        return machine;
    }

    // The measured figures are fitted from their built-in values, not from the known ones.
    Done fit(Calibrated &found) const {
        const Machine machine = unsaid();
        PlannerInputs inputs = inputs_of(machine);
        // Ranks that share a core delay each other's copies, so their copy rate is a last resort.
        const bool measures_copies = machine.ranks_per_core <= 1 || !has_copies(known_);
        const std::vector<size_t> fitted = figures_of(groups_of(machine_, measures_copies));
        Calibration &figures = found.job.figures;
        figures = known_;
        for (const size_t figure : fitted) figures.forget(figure);
        figures.update(found.figures);
        figures.apply(machine.settings, inputs.speeds);
        std::vector<Probe> probes;
        StepCountCache counts;
        for (const MeasuredCall &call : calls_) {
            QCCL_TRY(const Probe probe, probe_of_call(call, machine, inputs, counts));
            probes.push_back(probe);
        }
        const SpeedFit fit = fit_speeds(probes, inputs.speeds, fitted);
        found.figures.update(fit.figures);
        figures.update(fit.figures);
        found.job.counted.shape = shape_of(machine);
        for (const Probe &probe : probes)
            set_factor(found.job.counted, probe.problem, probe.algorithm,
                       probe.measured_ns / probe.predicted_ns(fit.speeds));
        found.calls = static_cast<uint32_t>(probes.size());
        found.within = fit.within;
        return {};
    }

    // Simulates the same calls with the fitted figures. With more ranks than the limit this would
    // take longer than the calls did.
    Done simulate_calls(Calibrated &found) const {
        constexpr uint32_t most_ranks = 64;
        found.job.simulated.shape = found.job.shape();
        if (machine_.ranks > most_ranks) return {};
        Machine machine = unsaid();
        machine.measured = std::make_shared<const Measured>(Measured{found.job.figures, {}});
        QCCL_TRY(const SimulatedJob job, SimulatedJob::create(machine, ""));
        for (const MeasuredCall &call : calls_) {
            QCCL_TRY(const SimulatedJob::PlannedCall planned,
                     job.plan(call.operation, &call.codec, call.algorithm));
            QCCL_TRY(const Simulation simulation, job.run(planned, repeated_calls(machine.ranks)));
            set_factor(found.job.simulated, planned.call.problem, call.algorithm,
                       call.out_of_place() / simulation.time_ns);
        }
        return {};
    }

    Done measure_codecs(Calibrated &found) {
        for (const std::string_view name : rated_codecs()) {
            step(std::string(name));
            QCCL_TRY(const Codec codec, parse_codec(name));
            QCCL_TRY(const CodecRate rate, rate_of(codec));
            found.figures.set(codec, rate);
            found.codecs++;
        }
        return {};
    }

    void step(const std::string &what) {
        if (rank_group_.rank() == 0) tell_(step_++, steps_, what);
    }

    RankGroup &rank_group_;
    const qcclComm_t comm_;
    const Machine &machine_;
    const Calibration &known_;
    CalibrationExtent extent_;
    const TellStep &tell_;
    std::vector<MeasuredCall> calls_;
    uint64_t step_ = 0, steps_ = 0;
};

} // namespace

Result<Calibrated> calibrate(RankGroup &rank_group, qcclComm_t comm, const Machine &machine,
                             const Calibration &known, const CalibrationExtent &extent,
                             const TellStep &tell) {
    return Run(rank_group, comm, machine, known, extent, tell).measure();
}

std::string machine_text(const Machine &machine) {
    std::string text = std::to_string(machine.ranks) + " ranks on " +
                       std::to_string(machine.hosts()) +
                       (machine.hosts() == 1 ? " host" : " hosts");
    if (machine.ranks_per_core <= 1) return text + ", each on a core of its own";
    char shared[48];
    std::snprintf(shared, sizeof shared, ", %.3g on a core", machine.ranks_per_core);
    return text + shared;
}

} // namespace qccl::perf
