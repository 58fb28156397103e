// Keeps track of ready and parked tasks, arrived messages and slots in use.
#include "plan/simulated_rank.hpp"

#include <algorithm>
#include <functional>

namespace qccl {

SimulatedRank::SimulatedRank(uint32_t number, const RankProgram &program, uint64_t instances,
                             uint32_t calls, uint32_t most_lanes)
    : number_(number), program_(program), instances_(instances), calls_(calls),
      most_lanes_(most_lanes), lanes_(std::min<uint64_t>(program.lanes, instances)),
      has_arrived_(size_t{calls} * program.receives * instances),
      arrived_(size_t{calls} * program.receives * most_lanes),
      origins_(size_t{program.wires} * lanes_.size()), holds_(program.outbox * lanes_.size()) {}

void SimulatedRank::begin_call() {
    call_++;
    lanes_left_ = static_cast<uint32_t>(lanes_.size());
    for (uint32_t i = 0; i < lanes_.size(); i++) begin(lanes_[i], i);
}

void SimulatedRank::begin(Lane &lane, uint64_t instance) {
    lane.instance = instance;
    lane.oldest = 0;
    lane.is_over = false;
    lane.waits = program_.graph.waits;
    lane.is_done.assign(program_.tasks.size(), false);
    if (program_.tasks.empty()) {
        lane.is_over = true;
        lanes_left_--;
    }
    for (uint32_t task = 0; task < program_.tasks.size(); task++)
        if (lane.waits[task] == 0) make_ready(lane, task);
}

void SimulatedRank::make_ready(Lane &lane, uint32_t task) {
    const bool receives = program_.tasks[task].verb == Verb::recv;
    if (receives && !has_arrived_[arrival(call_, task, lane.instance)]) return;
    lane.ready.push_back(task);
    std::push_heap(lane.ready.begin(), lane.ready.end(), std::greater<>());
}

std::optional<SimulatedRank::Choice> SimulatedRank::choose() {
    std::optional<Choice> best;
    for (uint32_t i = 0; i < lanes_.size(); i++) {
        if (lanes_[i].is_over || (best && lanes_[i].instance > lanes_[best->lane].instance))
            continue;
        if (const auto task = first_of(i)) best = Choice{i, *task};
    }
    if (!best) return best;
    std::vector<uint32_t> &ready = lanes_[best->lane].ready;
    std::pop_heap(ready.begin(), ready.end(), std::greater<>());
    ready.pop_back();
    take_slots(best->lane, best->task);
    return best;
}

std::optional<uint32_t> SimulatedRank::first_of(uint32_t number) {
    Lane &lane = lanes_[number];
    while (!lane.ready.empty()) {
        const uint32_t task = lane.ready.front();
        if (task - lane.oldest >= window) return {};
        if (has_room(number, task)) return task;
        std::pop_heap(lane.ready.begin(), lane.ready.end(), std::greater<>());
        lane.ready.pop_back();
        lane.parked.push_back(task);
    }
    return {};
}

bool SimulatedRank::has_room(uint32_t lane, uint32_t number) const {
    const RankProgram::Task &task = program_.tasks[number];
    for (uint32_t i = task.fills_first; i < task.fills_last; i++)
        if (holds_[lane * program_.outbox + program_.slots[i]] != 0) return false;
    return true;
}

void SimulatedRank::take_slots(uint32_t lane, uint32_t number) {
    const RankProgram::Task &task = program_.tasks[number];
    for (uint32_t i = task.fills_first; i < task.fills_last; i++) {
        const uint32_t wire = program_.slots[i], slot = lane * program_.outbox + wire;
        add_hold(slot);
        origins_[size_t{lane} * program_.wires + wire] = {number_, slot};
    }
}

void SimulatedRank::finish(Choice done) {
    Lane &lane = lanes_[done.lane];
    const RankProgram::Task &task = program_.tasks[done.task];
    if (task.verb == Verb::recv)
        origins_[size_t{done.lane} * program_.wires + task.wire] =
            arrived(call_, done.task, lane.instance);
    lane.is_done[done.task] = true;
    for (const uint32_t next : program_.graph.after(done.task))
        if (--lane.waits[next] == 0) make_ready(lane, next);
    while (lane.oldest < lane.is_done.size() && lane.is_done[lane.oldest]) lane.oldest++;
    if (lane.oldest < lane.is_done.size()) return;
    const uint64_t next = lane.instance + lanes_.size();
    if (next < instances_) return begin(lane, next);
    lane.is_over = true;
    lanes_left_--;
}

void SimulatedRank::arrive(const MessageArrival &arrival) {
    const uint32_t task = arrival.task;
    const auto number = static_cast<uint32_t>(arrival.instance % lanes_.size());
    Lane &lane = lanes_[number];
    has_arrived_[this->arrival(arrival.call, task, arrival.instance)] = true;
    arrived(arrival.call, task, arrival.instance) = arrival.origin;
    if (arrival.call == call_ && !lane.is_over && lane.instance == arrival.instance &&
        lane.waits[task] == 0 && !lane.is_done[task])
        make_ready(lane, task);
}

bool SimulatedRank::release(uint32_t slot) {
    if (--holds_[slot] != 0) return false;
    held_--;
    Lane &lane = lanes_[slot / program_.outbox];
    for (const uint32_t task : lane.parked) {
        lane.ready.push_back(task);
        std::push_heap(lane.ready.begin(), lane.ready.end(), std::greater<>());
    }
    const bool has_parked = !lane.parked.empty();
    lane.parked.clear();
    return has_parked || (program_.lends && has_ended());
}

} // namespace qccl
