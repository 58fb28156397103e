// Implements perf_commands.hpp: counts the values that are not finite, writes results as they come,
// prepares the run and starts the ranks. A write error is kept until the end, so that the
// measurement goes on.
#include "perf/commands/perf_commands.hpp"

#include "perf/report/tool_files.hpp"
#include "perf/run/benchmark.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/launch.hpp"
#include "perf/run/session.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <sys/resource.h>
#include <unistd.h>

namespace qccl::perf {

// ---- Notes about values

static uint64_t count_non_finite(const Source &source, uint32_t rank, DataType type,
                                 uint64_t count) {
    static constexpr size_t block = 4096;
    std::vector<std::byte> raw(block * type_bytes(type));
    std::vector<double> values(block);
    uint64_t found = 0;
    for (uint64_t at = 0; at < count; at += block) {
        const size_t here = std::min<uint64_t>(block, count - at);
        source.read(rank, type, at, here, raw.data());
        load_reals(type, raw.data(), here, values.data());
        for (size_t i = 0; i < here; i++) found += !std::isfinite(values[i]);
    }
    return found;
}

Result<std::string> non_finite_note(RankGroup &rank_group, const Source &source, DataType type,
                                    uint64_t count) {
    if (!info(type).is_float) return std::string();
    QCCL_TRY(const auto all,
             gather(rank_group, count_non_finite(source, rank_group.rank(), type, count)));
    uint64_t found = 0;
    for (const uint64_t of_rank : all) found += of_rank;
    if (found == 0) return std::string();
    return std::to_string(found) + " of the " + std::to_string(count * rank_group.size()) +
           " input values " + (found == 1 ? "is" : "are") +
           " NaN or infinite; what contains them has no NMSE";
}

std::string overflow_note(const Row &row) {
    const uint64_t found = std::max(row.out_of_place.overflowed, row.in_place.overflowed);
    if (found == 0) return std::string();
    const Operation &operation = row.operation;
    return std::to_string(found) + (found == 1 ? " result" : " results") + " of " +
           std::to_string(operation.bytes()) + " bytes, " + name(operation.type) + " " +
           name(operation.op) + ", may overflow what " + name(operation.type) + " holds: no NMSE";
}

// ---- Reporting on rank 0

Result<Outputs> Outputs::open(const PerfArguments &arguments) {
    Outputs outputs;
    if (!arguments.json_file.empty()) {
        QCCL_TRY(outputs.rows, JsonFile::open(arguments.json_file));
    }
    if (!arguments.nccl_json_file.empty()) {
        QCCL_TRY(outputs.nccl, JsonFile::create(arguments.nccl_json_file));
    }
    return outputs;
}

Done Outputs::deliver() const {
    if (rows) QCCL_TRY(rows->deliver());
    return nccl ? nccl->deliver() : Done{};
}

static uint64_t most_memory_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

Reporter::Reporter(const PerfArguments &arguments, const std::string &program, Outputs &outputs,
                   RunInfo run, uint64_t steps)
    : arguments_(arguments), outputs_(outputs), progress_(steps),
      out_(arguments.json_file == "-" ? stderr : stdout), report_(arguments, program, out_) {
    if (outputs_.nccl)
        std::fprintf(out_, "# Writing JSON output to %s\n", outputs_.nccl->path().c_str());
    report_.print_header(run.ranks);
    try_to(flush(out_));
    run.start_time = timestamp();
    if (outputs_.rows) try_to(outputs_.rows->begin(rows_head(run.command_line), rows_tail));
    if (outputs_.nccl) try_to(outputs_.nccl->begin(nccl_head(arguments, run), nccl_tail_now()));
}

ProgressListener Reporter::listener() {
    return {
        .progress = [this](uint64_t step, const std::string &what) { progress_.show(step, what); },
        .row = [this](const Row &row) { take(row); },
        .note = [this](const std::string &sentence) { note(sentence); }};
}

void Reporter::take(const Row &row) {
    progress_.clear();
    report_.print_row(row);
    if (const std::string overflow = overflow_note(row); !overflow.empty()) note(overflow);
    try_to(flush(out_));
    if (outputs_.rows) try_to(outputs_.rows->add(rows_json(row), rows_tail));
    if (outputs_.nccl) try_to(outputs_.nccl->add(nccl_row(row, arguments_), nccl_tail_now()));
}

void Reporter::note(const std::string &sentence) {
    if (!notes_.insert(sentence).second) return;
    progress_.clear();
    std::fprintf(out_, "# %s\n", sentence.c_str());
}

void Reporter::try_to(const Done &write) {
    if (trouble_) trouble_ = write;
}

std::string Reporter::nccl_tail_now() const {
    std::optional<bool> is_fast_enough;
    if (arguments_.least_busbw) is_fast_enough = !report_.is_too_slow();
    return nccl_tail({.rows_wrong = report_.rows_wrong(),
                      .average_busbw = report_.average_busbw(),
                      .is_fast_enough = is_fast_enough},
                     timestamp());
}

Done Reporter::finish() {
    progress_.clear();
    report_.print_footer(most_memory_bytes());
    try_to(flush(out_));
    if (outputs_.nccl) try_to(outputs_.nccl->finish(nccl_tail_now()));
    return trouble_;
}

// ---- The command

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
            return invalid_argument("the input files hold %s, and --datatype says %s",
                                    name(files.type()), name(type));
    const uint64_t bytes = files.count() * type_bytes(files.type());
    const uint64_t of_call = bytes / std::max(arguments.group, 1U);
    // A rank's part of a v-form may be everything.
    const bool is_part = gathers(arguments.kind()) && arguments.pattern != Pattern::v_form;
    const uint64_t most = is_part ? of_call * arguments.ranks : of_call;
    if (!arguments.names_sizes) arguments.min_bytes = arguments.max_bytes = most;
    if (arguments.max_bytes > most)
        return invalid_argument(
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
    if (const auto note = one_file_note(input); !note.empty()) plan.notes.push_back(note);
    QCCL_TRY(auto files, Files::open(input, plan.arguments.ranks));
    QCCL_TRY(take_files(plan.arguments, *files));
    plan.source = std::move(files);
    return {};
}

static Done check_memory(const PerfArguments &arguments) {
    const auto available = available_memory_bytes();
    const double needed = buffer_bytes(arguments) * arguments.ranks;
    if (!available || needed <= static_cast<double>(*available)) return {};
    return invalid_argument("buffers of up to %s for each of %u ranks need %s of memory, and this "
                            "machine has %s available",
                            memory_text(static_cast<double>(arguments.max_bytes)).c_str(),
                            arguments.ranks, memory_text(needed).c_str(),
                            memory_text(static_cast<double>(*available)).c_str());
}

// Checks everything that can be checked before the ranks start measuring.
static Done prepare(Plan &plan, bool writes) {
    const PerfArguments &arguments = plan.arguments;
    if (arguments.root && *arguments.root >= arguments.ranks)
        return invalid_argument("--root %u is none of the %u ranks", *arguments.root,
                                arguments.ranks);
    QCCL_TRY(check_pattern(arguments.pattern, arguments.ranks));
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
    const Operation largest =
        operation_of(arguments, type, RedOp::sum, 0, rank_group.size(), arguments.max_bytes);
    return non_finite_note(rank_group, *plan.source, type, largest.send_count() * largest.calls());
}

static Result<int> play(Plan &plan, RankGroup &rank_group, qcclComm_t comm, const MpiModule *mpi) {
    const bool has_baseline = !plan.arguments.baseline.empty();
    QCCL_TRY(const RankDevice device,
             RankDevice::open(plan.arguments.device_of(rank_group.rank())));
    const RankContext context{.rank_group = rank_group,
                              .comm = comm,
                              .source = *plan.source,
                              .arguments = plan.arguments,
                              .device = device,
                              .mpi = has_baseline ? mpi : nullptr};
    QCCL_TRY(std::vector<RankInfo> ranks, introduce(rank_group, device));
    QCCL_TRY(const auto caveat, input_caveat(plan, rank_group));
    if (rank_group.rank() != 0) {
        const auto nothing = [](const auto &...) {};
        QCCL_TRY(run_benchmark(context, {.progress = nothing, .row = nothing, .note = nothing}));
        return EXIT_SUCCESS;
    }
    Reporter reporter(
        plan.arguments, plan.program, plan.outputs,
        {.start_time = "", .command_line = plan.command_line, .ranks = std::move(ranks)},
        sweep_points(plan.arguments));
    for (const std::string &note : plan.notes) reporter.note(note);
    if (!caveat.empty()) reporter.note(caveat);
    QCCL_TRY(run_benchmark(context, reporter.listener()));
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

int run_perf(const CallKind &kind, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line) {
    auto parsed = parse_perf_arguments(kind, program, arguments, how_started());
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
