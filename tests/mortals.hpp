// What programs share that fork ranks of which some are to die: memory in which each reports, their
// processes, and words about them. Knows not what the ranks do.
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

namespace mortals {

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

// One for each of so many ranks, all zeros, shared with the processes that are forked afterwards.
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

// Of the ranks, killed and awaited at the latest with this.
class Processes {
public:
    Processes() = default;
    Processes(const Processes &) = delete;
    Processes &operator=(const Processes &) = delete;
    ~Processes() {
        for (const pid_t pid : pids_) ::kill(pid, SIGKILL);
        while (waitpid(-1, nullptr, 0) > 0) {}
    }

    // The next rank's; `body` does not return.
    template <class Body> bool start(Body body) {
        const pid_t pid = fork();
        if (pid == 0) body();
        if (pid > 0) pids_.push_back(pid);
        return pid > 0;
    }
    void kill(int rank) const { ::kill(pids_[static_cast<size_t>(rank)], SIGKILL); }
    // How it has ended, as wait tells; nothing: not as long as it `may_last`.
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

} // namespace mortals
