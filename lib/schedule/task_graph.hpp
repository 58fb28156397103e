// The tasks of a schedule, which are the units that an engine issues at once, and which tasks wait
// for which. The engine uses it and adds dependencies of its own; the proof for synchronous sends
// and the simulator use it to run all ranks of a schedule without bytes. Pure functions; any
// thread.
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

// Returns joined steps as one run, and every other step as a run of its own. If `joins` is false,
// every step is a run of its own.
std::vector<StepRun> find_runs(const Schedule &schedule, bool joins = true);

// Tasks, and the order between them.
struct TaskGraph {
    // A send, a receive, or a run of joined steps.
    struct Task {
        uint32_t first = 0, last = 0;           // the schedule's steps [first, last)
        uint32_t next_first = 0, next_last = 0; // `next`: the tasks that wait for this one
    };

    std::vector<Task> tasks;     // in the schedule's order
    std::vector<uint32_t> waits; // by task: how many tasks must be done before it
    std::vector<uint32_t> next;

    std::span<const uint32_t> after(uint32_t task) const {
        return std::span(next).subspan(tasks[task].next_first,
                                       tasks[task].next_last - tasks[task].next_first);
    }
};

// Returns the tasks of the schedule. `dependencies` is what lower() returned for it.
TaskGraph make_tasks(const Schedule &schedule, const Dependencies &dependencies);

} // namespace qccl
