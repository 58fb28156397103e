// Implements reporter.hpp. A write error is kept until the end, so that the measurement goes on.
#include "perf/reporter.hpp"

#include "perf/caveats.hpp"
#include "perf/standard_output.hpp"

#include <cstdio>

#include <sys/resource.h>

namespace qccl::perf {

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

} // namespace qccl::perf
