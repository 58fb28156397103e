// Collects runs of joined steps into tasks, and merges the steps' dependencies into the tasks'.
#include "schedule/task_graph.hpp"

#include <numeric>

namespace qccl {

namespace {

constexpr uint32_t none = ~uint32_t{0};

// Adds the tasks to the graph, and returns the number of each step's task.
std::vector<uint32_t> find_tasks(const Schedule &schedule, TaskGraph &graph) {
    std::vector<uint32_t> task_of(schedule.steps.size());
    for (const StepRun &run : find_runs(schedule)) {
        for (uint32_t i = run.first; i < run.last; i++)
            task_of[i] = static_cast<uint32_t>(graph.tasks.size());
        graph.tasks.push_back({.first = run.first, .last = run.last});
    }
    return task_of;
}

// Calls visit(earlier, later) once for each pair of tasks of which the later one waits for the
// earlier.
template <class Visitor>
void each_order(const TaskGraph &graph, const Dependencies &dependencies,
                const std::vector<uint32_t> &task_of, Visitor visit) {
    std::vector<uint32_t> last_waiter(graph.tasks.size(), none);
    for (uint32_t later = 0; later < graph.tasks.size(); later++)
        for (uint32_t step = graph.tasks[later].first; step < graph.tasks[later].last; step++)
            for (const uint32_t waited_for : dependencies.of(step)) {
                const uint32_t earlier = task_of[waited_for];
                if (earlier == later || last_waiter[earlier] == later) continue;
                last_waiter[earlier] = later;
                visit(earlier, later);
            }
}

} // namespace

std::vector<StepRun> find_runs(const Schedule &schedule, bool joins) {
    std::vector<StepRun> runs;
    uint32_t first = 0;
    for (uint32_t i = 0; i < schedule.steps.size(); i++) {
        if (joins && schedule.steps[i].has(Step::joins_next)) continue;
        runs.push_back({first, i + 1});
        first = i + 1;
    }
    return runs;
}

TaskGraph make_tasks(const Schedule &schedule, const Dependencies &dependencies) {
    TaskGraph graph;
    const std::vector<uint32_t> task_of = find_tasks(schedule, graph);
    graph.waits.assign(graph.tasks.size(), 0);
    std::vector<uint32_t> ends(graph.tasks.size() + 1);
    each_order(graph, dependencies, task_of, [&](uint32_t earlier, uint32_t later) {
        graph.waits[later]++;
        ends[earlier + 1]++;
    });
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    for (uint32_t i = 0; i < graph.tasks.size(); i++)
        graph.tasks[i].next_first = graph.tasks[i].next_last = ends[i];
    graph.next.resize(ends.back());
    each_order(graph, dependencies, task_of, [&](uint32_t earlier, uint32_t later) {
        graph.next[graph.tasks[earlier].next_last++] = later;
    });
    return graph;
}

} // namespace qccl
