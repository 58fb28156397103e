// The tasks of a schedule: what an engine issues at once, and which tasks wait for which. Used by
// the engine, which adds its own tasks' order, and where all ranks of a schedule run without bytes:
// the proof for synchronous sends, the simulator. A pure function; any thread.
#pragma once

#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// Consecutive steps that the engine issues at once: [first, last) of the schedule.
struct StepRun {
    uint32_t first = 0, last = 0;
};

// Joined steps together, all others alone; `joins` false: every step alone.
std::vector<StepRun> find_runs(const Schedule &schedule, bool joins = true);

struct TaskGraph {
    // A send, a receive, or a run of joined steps.
    struct Task {
        uint32_t first = 0, last = 0;           // the schedule's steps [first, last)
        uint32_t next_first = 0, next_last = 0; // `next`: the tasks that wait for this one
    };

    std::vector<Task> tasks;     // in the schedule's order
    std::vector<uint32_t> waits; // of each task: how many tasks must be done before it
    std::vector<uint32_t> next;

    std::span<const uint32_t> after(uint32_t task) const {
        return std::span(next).subspan(tasks[task].next_first,
                                       tasks[task].next_last - tasks[task].next_first);
    }
};

// `dependencies` are what lower() returned for this schedule.
TaskGraph make_tasks(const Schedule &schedule, const Dependencies &dependencies);

} // namespace qccl
