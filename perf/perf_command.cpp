#include "perf/perf_command.hpp"

#include "coll/algorithm.hpp"
#include "perf/benchmark.hpp"
#include "perf/crew_comm.hpp"
#include "perf/json.hpp"
#include "perf/launch.hpp"
#include "perf/mpi_crew.hpp"
#include "perf/progress_line.hpp"
#include "perf/report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include <sys/resource.h>
#include <unistd.h>

namespace qccl::perf {

static constexpr int usage_error = 2;

// All that is settled before ranks start.
struct Plan {
    PerfArguments arguments;
    std::string program;
    std::vector<std::string> command_line;
    std::unique_ptr<Source> source;
};

static int complain(const Error &error) {
    std::fprintf(stderr, "qccl-perf: %s\n", error.text);
    return EXIT_FAILURE;
}

std::vector<std::string> algorithm_names() {
    std::vector<std::string> names;
    for (const Algorithm &algorithm : algorithms()) names.push_back(algorithm.name);
    return names;
}

// Sizes and type are the files' where the command line names none.
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

static Done prepare_source(Plan &plan) {
    if (plan.arguments.input.empty()) {
        plan.source = make_gaussian(plan.arguments.seed);
        return {};
    }
    QCCL_TRY(auto files, Files::open(plan.arguments.input, plan.arguments.ranks));
    QCCL_TRY(take_files(plan.arguments, *files));
    plan.source = std::move(files);
    return {};
}

static Result<std::vector<RankInfo>> introduce(Crew &crew) {
    RankInfo mine;
    mine.rank = static_cast<int32_t>(crew.rank());
    mine.process = static_cast<int32_t>(getpid());
    gethostname(mine.host, sizeof mine.host - 1);
    return gather(crew, mine);
}

static uint64_t most_memory_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// What rank 0 tells people and files.
class Teller {
public:
    Teller(const Plan &plan, std::vector<RankInfo> ranks)
        : plan_(plan), ranks_(std::move(ranks)), progress_(sweep_points(plan.arguments)),
          out_(plan.arguments.json_file == "-" ? stderr : stdout),
          report_(plan.arguments, plan.program, out_), start_time_(timestamp()) {
        report_.print_header(ranks_);
    }

    Audience audience() {
        return {.progress = [this](uint64_t step,
                                   const std::string &what) { progress_.show(step, what); },
                .row = [this](const Row &row) { take(row); },
                .note = [this](const std::string &sentence) { note(sentence); }};
    }

    Done finish() {
        progress_.clear();
        report_.print_footer(most_memory_bytes());
        const PerfArguments &arguments = plan_.arguments;
        if (!arguments.json_file.empty())
            QCCL_TRY(write_text(arguments.json_file, rows_json(rows_)));
        if (arguments.nccl_json_file.empty()) return {};
        const RunInfo run{.start_time = start_time_,
                          .end_time = timestamp(),
                          .command_line = plan_.command_line,
                          .ranks = ranks_,
                          .rows_wrong = report_.rows_wrong(),
                          .average_busbw = report_.average_busbw()};
        QCCL_TRY(const std::string path,
                 write_new_file(arguments.nccl_json_file, nccl_json(rows_, arguments, run)));
        std::fprintf(out_, "# Writing JSON output to %s\n", path.c_str());
        return {};
    }

    bool found_wrong() const { return report_.rows_wrong() > 0; }

private:
    void take(const Row &row) {
        progress_.clear();
        report_.print_row(row);
        // Endless cycles would fill the memory with rows that nobody will write.
        if (plan_.arguments.cycles != 0) rows_.push_back(row);
    }

    void note(const std::string &sentence) {
        if (!notes_.insert(sentence).second) return;
        progress_.clear();
        std::fprintf(out_, "# %s\n", sentence.c_str());
    }

    const Plan &plan_;
    std::vector<RankInfo> ranks_;
    ProgressLine progress_;
    std::FILE *out_;
    Report report_;
    std::string start_time_;
    std::vector<Row> rows_;
    std::set<std::string> notes_; // each is said once
};

static Result<int> play(const Plan &plan, Crew &crew, qcclComm_t comm, const MpiModule *mpi,
                        const char *transport) {
    const bool has_baseline = !plan.arguments.baseline.empty();
    const Stage stage{.crew = crew,
                      .comm = comm,
                      .source = *plan.source,
                      .arguments = plan.arguments,
                      .mpi = has_baseline ? mpi : nullptr,
                      .transport = transport};
    QCCL_TRY(std::vector<RankInfo> ranks, introduce(crew));
    if (crew.rank() != 0) {
        const auto nothing = [](const auto &...) {};
        QCCL_TRY(run_benchmark(stage, {.progress = nothing, .row = nothing, .note = nothing}));
        return EXIT_SUCCESS;
    }
    Teller teller(plan, std::move(ranks));
    QCCL_TRY(run_benchmark(stage, teller.audience()));
    QCCL_TRY(teller.finish());
    return teller.found_wrong() ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int status_of(const Result<int> &played, const Crew &crew) {
    if (played) return *played;
    if (std::string_view(played.error().text) != Crew::given_up)
        std::fprintf(stderr, "rank %u: %s\n", crew.rank(), played.error().text);
    return EXIT_FAILURE;
}

static qcclConfig_t config_of(const PerfArguments &arguments) {
    qcclConfig_t config = lossless_config();
    config.timeout = arguments.timeout_s;
    return config;
}

static int run_processes(const Plan &plan) {
    return launch_processes(plan.arguments.ranks, [&plan](Crew &crew) {
        const auto act = [&]() -> Result<int> {
            QCCL_TRY(const CommHandle comm, create_comm(crew, config_of(plan.arguments)));
            return play(plan, crew, comm.get(), nullptr, "shm");
        };
        return status_of(act(), crew);
    });
}

static int run_threads(const Plan &plan) {
    const auto comms = create_comms(plan.arguments.ranks);
    if (!comms) return complain(comms.error());
    return launch_threads(plan.arguments.ranks, [&](Crew &crew) {
        return status_of(play(plan, crew, (*comms)[crew.rank()].get(), nullptr, "inproc"), crew);
    });
}

static int run_under_mpi(Plan &plan) {
    const auto crew = MpiCrew::create();
    if (!crew) return complain(crew.error());
    plan.arguments.ranks = (*crew)->size();
    const auto act = [&]() -> Result<int> {
        if (plan.arguments.root && *plan.arguments.root >= plan.arguments.ranks)
            return Error::make(Code::invalid_argument, "--root %u is none of the %u ranks",
                               *plan.arguments.root, plan.arguments.ranks);
        QCCL_TRY(prepare_source(plan));
        const MpiModule &mpi = (*crew)->module();
        QCCL_TRY(const CommHandle comm, create_comm(**crew, mpi, config_of(plan.arguments)));
        return play(plan, **crew, comm.get(), &mpi, "shm");
    };
    const Result<int> played = act();
    const int status = status_of(played, **crew);
    if (!played) (*crew)->give_up(); // the other processes may be waiting in MPI
    return status;
}

int run_perf(Collective collective, const std::string &program,
             const std::vector<std::string> &arguments,
             const std::vector<std::string> &command_line) {
    const std::vector<std::string> algorithms = algorithm_names();
    auto parsed = parse_perf_arguments(collective, program, arguments, algorithms, is_under_mpi());
    if (const int *const status = std::get_if<int>(&parsed)) return *status;
    Plan plan{.arguments = std::get<PerfArguments>(parsed),
              .program = program,
              .command_line = command_line,
              .source = nullptr};
    if (plan.arguments.launch == Launch::mpi) return run_under_mpi(plan);
    if (const Done prepared = prepare_source(plan); !prepared) {
        (void)complain(prepared.error());
        return usage_error;
    }
    return plan.arguments.launch == Launch::threads ? run_threads(plan) : run_processes(plan);
}

} // namespace qccl::perf
