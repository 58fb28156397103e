// Shows the progress of a long run in one line on standard error if that is a terminal, and nothing
// otherwise. Used by qccl-perf. One thread at a time.
#pragma once

#include <cstdint>
#include <string>

namespace qccl::perf {

class ProgressLine {
public:
    explicit ProgressLine(uint64_t steps);
    ~ProgressLine() { clear(); }
    ProgressLine(const ProgressLine &) = delete;
    ProgressLine &operator=(const ProgressLine &) = delete;

    void show(uint64_t step, const std::string &what);
    // Call before anything else is printed.
    void clear();

private:
    bool is_terminal_;
    bool is_shown_ = false;
    uint64_t steps_;
};

} // namespace qccl::perf
