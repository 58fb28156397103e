// Runs the ranks of bootstrap tests as processes, and collects their results.
#pragma once

#include "tests/kit/rendezvous_kit.hpp"

#include <cstdio>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

namespace kit {

// A forked rank's result, which it sends to its parent. A process that dies sends nothing.
struct Report {
    int32_t code = -1;
    int32_t rank = -1;
    char text[sizeof Error::text] = "died without a word";
};

struct Processes {
    std::vector<pid_t> pids;
    std::vector<int> pipes;

    template <class Part> void start(Part part) {
        int ends[2];
        CHECK(pipe(ends) == 0);
        const pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            const Done done = part();
            Report report{0, -1, ""};
            if (!done) {
                report.code = static_cast<int32_t>(done.error().code);
                report.rank = done.error().rank;
                snprintf(report.text, sizeof report.text, "%s", done.error().text);
            }
            _exit(write(ends[1], &report, sizeof report) == sizeof report ? 0 : 1);
        }
        close(ends[1]);
        pids.push_back(pid);
        pipes.push_back(ends[0]);
    }
    Report report(size_t i) {
        Report report;
        if (read(pipes[i], &report, sizeof report) != sizeof report) report = {};
        return report;
    }
    ~Processes() {
        for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
        for (const int end : pipes) close(end);
    }
};

} // namespace kit
