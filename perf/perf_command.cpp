// Implements qccl-perf's benchmark command: prepares the run, starts the ranks, and reports the
// results.
#include "perf/perf_command.hpp"

#include "perf/benchmark.hpp"
#include "perf/caveats.hpp"
#include "perf/group_comm.hpp"
#include "perf/available_memory.hpp"
#include "perf/number_text.hpp"
#include "perf/rank_start.hpp"
#include "perf/started.hpp"
#include "perf/reporter.hpp"

#include <cstdio>
#include <cstdlib>

#include <unistd.h>

namespace qccl::perf {

// The decisions made before the ranks start.
struct Plan {
    PerfArguments arguments;
    std::string program;
    std::vector<std::string> command_line;
    std::unique_ptr<Source> source;
    std::vector<std::string> notes; // about the request
    Outputs outputs;
};

// Takes size and type from the files unless the command line names them.
static Done take_files(PerfArguments &arguments, const Files &files) {
    if (!arguments.types) arguments.types = std::vector{files.type()};
    for (const DataType type : *arguments.types)
        if (type != files.type())
            return Error::make(Code::invalid_argument,
                               "the input files hold %s, and --datatype says %s",
                               name(files.type()), name(type));
    const uint64_t bytes = files.count() * type_bytes(files.type());
    const bool has_result_blocks = arguments.collective == Collective::all_gather;
    const uint64_t most = has_result_blocks ? bytes * arguments.ranks : bytes;
    if (!arguments.names_sizes) arguments.min_bytes = arguments.max_bytes = most;
    if (arguments.max_bytes > most)
        return Error::make(
            Code::invalid_argument,
            "the input files hold %llu values, enough for %llu bytes, and --maxbytes is %llu",
            static_cast<unsigned long long>(files.count()), static_cast<unsigned long long>(most),
            static_cast<unsigned long long>(arguments.max_bytes));
    return {};
}

// The first variable is read by programs that use the library, the others by nccl-tests.
static void note_unused_variables(Plan &plan) {
    static constexpr std::pair<const char *, const char *> unused[] = {
        {"QCCL_CODEC", "--codec says what is measured"},
        {"NCCL_TESTS_SPLIT", "all ranks are one group"},
        {"NCCL_TESTS_SPLIT_MASK", "all ranks are one group"},
        {"NCCL_TESTS_DEVICE", "--device names GPUs"}};
    if (const char *const file = std::getenv("QCCL_PLAN_FILE"); file && *file)
        plan.notes.emplace_back("of QCCL_PLAN_FILE no codec is used here: --codec says what is "
                                "measured");
    for (const auto &[name, reason] : unused) {
        const char *const value = std::getenv(name);
        if (value && *value)
            plan.notes.push_back(std::string(name) + " is not used here: " + reason);
    }
}

static Done take_least_busbw(PerfArguments &arguments) {
    const char *const text = std::getenv("NCCL_TESTS_MIN_BW");
    if (!text || !*text) return {};
    QCCL_TRY(const double least, parse_least_busbw(text));
    if (least >= 0) arguments.least_busbw = least; // -1 means unchecked in nccl-tests
    return {};
}

static Done prepare_source(Plan &plan) {
    const std::string &input = plan.arguments.input;
    if (input.empty()) {
        plan.source = make_gaussian(plan.arguments.seed);
        return {};
    }
    if (input.find("%r") == std::string::npos) plan.notes.push_back(one_file_note(input));
    QCCL_TRY(auto files, Files::open(input, plan.arguments.ranks));
    QCCL_TRY(take_files(plan.arguments, *files));
    plan.source = std::move(files);
    return {};
}

static Done check_memory(const PerfArguments &arguments) {
    const auto available = available_memory_bytes();
    const double needed = buffer_bytes(arguments) * arguments.ranks;
    if (!available || needed <= static_cast<double>(*available)) return {};
    return Error::make(Code::invalid_argument,
                       "buffers of up to %s for each of %u ranks need %s of memory, and this "
                       "machine has %s available",
                       memory_text(static_cast<double>(arguments.max_bytes)).c_str(),
                       arguments.ranks, memory_text(needed).c_str(),
                       memory_text(static_cast<double>(*available)).c_str());
}

// Checks everything that can be checked before the ranks start measuring.
static Done prepare(Plan &plan, bool writes) {
    const PerfArguments &arguments = plan.arguments;
    if (arguments.root && *arguments.root >= arguments.ranks)
        return Error::make(Code::invalid_argument, "--root %u is none of the %u ranks",
                           *arguments.root, arguments.ranks);
    QCCL_TRY(arguments.check_devices());
    QCCL_TRY(take_least_busbw(plan.arguments));
    note_unused_variables(plan);
    QCCL_TRY(prepare_source(plan));
    QCCL_TRY(check_combinations(arguments));
    QCCL_TRY(check_memory(arguments));
    if (writes) {
        QCCL_TRY(plan.outputs, Outputs::open(arguments));
    }
    return {};
}

static Result<std::vector<RankInfo>> introduce(RankGroup &rank_group, const RankDevice &device) {
    RankInfo mine;
    mine.rank = static_cast<int32_t>(rank_group.rank());
    mine.process = static_cast<int32_t>(getpid());
    gethostname(mine.host, sizeof mine.host - 1);
    mine.device = device.number();
    std::snprintf(mine.device_name, sizeof mine.device_name, "%s", device.name().c_str());
    std::snprintf(mine.model, sizeof mine.model, "%s", device.model().c_str());
    return gather(rank_group, mine);
}

// Generated data are always finite; data from files may not be.
static Result<std::string> input_caveat(const Plan &plan, RankGroup &rank_group) {
    const PerfArguments &arguments = plan.arguments;
    if (arguments.input.empty()) return std::string();
    const DataType type = arguments.types->front();
    const Operation largest = operation_of(arguments.collective, type, RedOp::sum, 0,
                                           rank_group.size(), arguments.max_bytes);
    return non_finite_note(rank_group, *plan.source, type, largest.send_count());
}

static Result<int> play(Plan &plan, RankGroup &rank_group, qcclComm_t comm, const MpiModule *mpi) {
    const bool has_baseline = !plan.arguments.baseline.empty();
    QCCL_TRY(const RankDevice device,
             RankDevice::open(plan.arguments.device_of(rank_group.rank())));
    const RankContext stage{.rank_group = rank_group,
                            .comm = comm,
                            .source = *plan.source,
                            .arguments = plan.arguments,
                            .device = device,
                            .mpi = has_baseline ? mpi : nullptr};
    QCCL_TRY(std::vector<RankInfo> ranks, introduce(rank_group, device));
    QCCL_TRY(const auto caveat, input_caveat(plan, rank_group));
    if (rank_group.rank() != 0) {
        const auto nothing = [](const auto &...) {};
        QCCL_TRY(run_benchmark(stage, {.progress = nothing, .row = nothing, .note = nothing}));
        return EXIT_SUCCESS;
    }
    Reporter reporter(
        plan.arguments, plan.program, plan.outputs,
        {.start_time = "", .command_line = plan.command_line, .ranks = std::move(ranks)},
        sweep_points(plan.arguments));
    for (const std::string &note : plan.notes) reporter.note(note);
    if (!caveat.empty()) reporter.note(caveat);
    QCCL_TRY(run_benchmark(stage, reporter.listener()));
    QCCL_TRY(reporter.finish());
    return reporter.has_failed() ? EXIT_FAILURE : EXIT_SUCCESS;
}

static qcclConfig_t config_of(const PerfArguments &arguments, uint32_t rank) {
    qcclConfig_t config = lossless_config();
    config.device = arguments.device_of(rank).c_str();
    config.timeout = arguments.timeout_s;
    return config;
}

// Writes the results to their targets, also after a failure.
static int delivered(const Plan &plan, int status) {
    const Done done = plan.outputs.deliver();
    return done || status != EXIT_SUCCESS ? status : complain(done.error());
}

int run_perf(Collective collective, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line) {
    auto parsed = parse_perf_arguments(collective, program, arguments, how_started());
    if (const Answer *const answer = std::get_if<Answer>(&parsed)) return tell_once(*answer);
    Plan plan{.arguments = std::get<PerfArguments>(parsed),
              .program = program,
              .command_line = command_line,
              .source = nullptr,
              .notes = {},
              .outputs = {}};
    return start_ranks({
        .launch = plan.arguments.launch,
        .ranks = plan.arguments.ranks,
        .prepare =
            [&plan](uint32_t ranks, bool is_first) {
                plan.arguments.ranks = ranks;
                return prepare(plan, is_first);
            },
        .config = [&plan](uint32_t rank) { return config_of(plan.arguments, rank); },
        .act = [&plan](RankGroup &rank_group, qcclComm_t comm,
                       const MpiModule *mpi) { return play(plan, rank_group, comm, mpi); },
        .finish = [&plan](int status) { return delivered(plan, status); },
    });
}

} // namespace qccl::perf
