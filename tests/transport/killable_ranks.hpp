// Helpers for tests that fork ranks and kill some of them: shared memory in which each rank
// reports, the ranks' processes, and a function that formats text.
#pragma once

#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace killable {

[[gnu::format(printf, 1, 2)]] inline std::string say(const char *format, ...) {
    char text[600];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

inline long number_after(int argc, char **argv, const char *option, long otherwise) {
    for (int i = 1; i + 1 < argc; i++)
        if (std::strcmp(argv[i], option) == 0) return std::strtol(argv[i + 1], nullptr, 10);
    return otherwise;
}

// One zeroed report for each rank, in memory shared with processes that are forked later.
template <class Report> class Reports {
public:
    explicit Reports(int ranks) : bytes_(sizeof(Report) * static_cast<size_t>(ranks)) {
        void *const memory =
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory != MAP_FAILED) first_ = static_cast<Report *>(memory);
    }
    Reports(const Reports &) = delete;
    Reports &operator=(const Reports &) = delete;
    ~Reports() {
        if (first_ != nullptr) munmap(first_, bytes_);
    }
    bool are_there() const { return first_ != nullptr; }
    Report &operator[](int rank) const { return first_[rank]; }

private:
    Report *first_ = nullptr;
    const size_t bytes_;
};

// The ranks' processes. The destructor kills and reaps them.
class Processes {
public:
    Processes() = default;
    Processes(const Processes &) = delete;
    Processes &operator=(const Processes &) = delete;
    ~Processes() {
        for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
        while (waitpid(-1, nullptr, 0) > 0) {}
    }

    // Starts the process of the next rank. `body` runs in it and does not return. Returns false if
    // the fork fails.
    template <class Body> bool start(Body body) {
        const pid_t pid = fork();
        if (pid == 0) body();
        if (pid > 0) pids_.push_back(pid);
        return pid > 0;
    }
    void kill(int rank) const { ::kill(pids_[static_cast<size_t>(rank)], SIGKILL); }
    // Waits for a rank's process. Returns its status in the form of waitpid, or nothing once
    // may_last() is false.
    template <class MayLast> std::optional<int> reap(int rank, MayLast may_last) const {
        int status = 0;
        while (waitpid(pids_[static_cast<size_t>(rank)], &status, WNOHANG) == 0) {
            if (!may_last()) return std::nullopt;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        return status;
    }

private:
    std::vector<pid_t> pids_;
};

} // namespace killable
