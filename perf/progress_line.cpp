// Overwrites one line of a terminal with the progress of a run.
#include "perf/progress_line.hpp"

#include <cinttypes>
#include <cstdio>

#include <unistd.h>

namespace qccl::perf {

ProgressLine::ProgressLine(uint64_t steps)
    : is_terminal_(isatty(STDERR_FILENO) == 1), steps_(steps) {}

void ProgressLine::show(uint64_t step, const std::string &what) {
    if (!is_terminal_) return;
    std::fprintf(stderr, "\r\033[K%" PRIu64 " of %" PRIu64 ": %s", step, steps_, what.c_str());
    std::fflush(stderr);
    is_shown_ = true;
}

void ProgressLine::clear() {
    if (!is_shown_) return;
    std::fprintf(stderr, "\r\033[K");
    std::fflush(stderr);
    is_shown_ = false;
}

} // namespace qccl::perf
