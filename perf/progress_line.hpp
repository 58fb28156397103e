// One line on a terminal that says how far a long run has come; nothing where standard error is no
// terminal.
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
    // To be called before anything else is printed.
    void clear();

private:
    bool is_terminal_;
    bool is_shown_ = false;
    uint64_t steps_;
};

} // namespace qccl::perf
