// Follows the last writer and the readers of every slot through the steps in order; counts the
// sends or receives in a row that have the same peer; collects runs of joined steps into tasks, and
// merges the steps' dependencies into the tasks'.
#include "schedule/lower.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

// ---- Dependencies of steps

namespace {

// The history of one slot: the step that wrote it last, and the steps that have read it since.
struct Cell {
    uint32_t writer = no_index;
    uint32_t readers = no_index; // head of a list in Lowering::reads_
    uint32_t last_reader = no_index;
};

class Lowering {
public:
    explicit Lowering(Schedule &schedule)
        : schedule_(schedule), cells_(size_t{2} * schedule.chunks + schedule.wires) {
        deps_.first.reserve(schedule.steps.size() + 1);
        deps_.earlier.reserve(schedule.steps.size() * 2);
        reads_.reserve(schedule.steps.size() * 2);
    }

    Dependencies run() {
        for (number_ = 0; number_ < schedule_.steps.size(); number_++) {
            Step &step = schedule_.steps[number_];
            step.flags &= static_cast<uint8_t>(~Step::releases);
            found_.clear();
            visit(step);
            keep();
        }
        for (const Cell &cell : wires()) release(cell);
        return std::move(deps_);
    }

private:
    struct CellRead {
        uint32_t step;
        uint32_t next;
    };

    std::span<Cell> wires() { return std::span(cells_).subspan(size_t{2} * schedule_.chunks); }

    Cell &cell(Slot slot) {
        switch (slot.what()) {
        case SlotKind::accumulator: return cells_[schedule_.chunks + slot.index];
        case SlotKind::wire: return cells_[size_t{2} * schedule_.chunks + slot.index];
        default: return cells_[slot.index]; // one slot in an in-place call
        }
    }

    void visit(Step &step) {
        if (step.verb != Verb::recv) {
            const uint32_t sources = step.verb == Verb::reduce ? step.sources : 1;
            for (uint32_t i = 0; i < sources; i++) read(cell(step.src.after(i)));
        }
        if (step.verb == Verb::send)
            step.ordinal = next_message(sent_, step.peer);
        else
            write(cell(step.dst), step.dst);
        if (step.verb == Verb::recv) step.ordinal = next_message(received_, step.peer);
    }

    static uint32_t next_message(std::vector<uint32_t> &counts, uint32_t peer) {
        if (peer >= counts.size()) counts.resize(size_t{peer} + 1);
        return counts[peer]++;
    }

    void read(Cell &place) {
        if (place.writer != no_index) found_.push_back(place.writer);
        place.readers = add_read(place.readers);
        place.last_reader = number_;
    }

    uint32_t add_read(uint32_t next) {
        reads_.push_back({number_, next});
        return static_cast<uint32_t>(reads_.size() - 1);
    }

    void write(Cell &place, Slot slot) {
        // The readers have waited for the writer, so waiting for the readers is enough.
        if (place.writer != no_index && place.readers == no_index) found_.push_back(place.writer);
        for (uint32_t i = place.readers; i != no_index; i = reads_[i].next)
            if (reads_[i].step != number_) found_.push_back(reads_[i].step);
        if (slot.is(SlotKind::wire)) release(place);
        place = {.writer = number_};
    }

    void release(const Cell &wire) {
        if (schedule_.is_placed && wire.last_reader != no_index)
            schedule_.steps[wire.last_reader].flags |= Step::releases;
    }

    // Appends the waits of the step, without those that another of its waits already implies.
    void keep() {
        std::sort(found_.begin(), found_.end());
        found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
        const auto is_implied = [&](uint32_t step) {
            return std::any_of(found_.begin(), found_.end(), [&](uint32_t later) {
                const auto waits = deps_.of(later);
                return later > step && std::binary_search(waits.begin(), waits.end(), step);
            });
        };
        // Long lists come from many readers of one value, and these do not wait for each other.
        constexpr size_t worth_looking = 8;
        for (const uint32_t step : found_)
            if (found_.size() > worth_looking || !is_implied(step)) deps_.earlier.push_back(step);
        deps_.first.push_back(static_cast<uint32_t>(deps_.earlier.size()));
    }

    Schedule &schedule_;
    std::vector<Cell> cells_;
    std::vector<CellRead> reads_;
    std::vector<uint32_t> found_;
    std::vector<uint32_t> sent_, received_; // messages so far, by peer
    Dependencies deps_;
    uint32_t number_ = 0;
};

} // namespace

Dependencies lower(Schedule &schedule) { return Lowering(schedule).run(); }

// ---- Series of messages

std::vector<uint32_t> places_in_series(const Schedule &schedule) {
    std::vector<uint32_t> places(schedule.steps.size());
    const Step *before = nullptr;
    uint32_t place = 0;
    for (size_t i = 0; i < places.size(); i++) {
        const Step &step = schedule.steps[i];
        if (computes(step.verb)) continue;
        const bool goes_on = before && before->verb == step.verb && before->peer == step.peer;
        place = goes_on ? place + 1 : 0;
        places[i] = place;
        before = &step;
    }
    return places;
}

// ---- Tasks

namespace {

constexpr uint32_t no_task = ~uint32_t{0};

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
    std::vector<uint32_t> last_waiter(graph.tasks.size(), no_task);
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
