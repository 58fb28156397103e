// Cuts a call as the engine does, and turns a rank's schedule into tasks with times. A simulated
// rank keeps track of ready and parked tasks, arrived messages and slots in use. GOAL text has a
// label for each task of each instance.
#include "plan/rank_program.hpp"

#include "codec/chunk.hpp"
#include "schedule/lower.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>

namespace qccl {

// ---- CallGeometry

Result<CallGeometry> CallGeometry::create(const SimulatedCall &call, uint32_t chunks,
                                          uint32_t outbox, bool rounds) {
    const Problem &problem = call.problem;
    const Codec inner = inner_codec(call.algorithm, problem.codec);
    const Layout layout = layout_of(problem, chunks, inner);
    CallGeometry shape;
    shape.limits_ = call.limits;
    shape.has_hosts_ = problem.has_hosts();
    QCCL_TRY(shape.geometry_,
             cut(layout, outbox, encoding_of(problem.codec, inner, problem.type), call.limits));
    const auto bytes = [&](uint64_t count, bool is_inner) {
        return usual_message_bytes(problem, is_inner ? inner : problem.codec, count);
    };
    shape.empty_bytes_ = header_bytes;
    shape.is_eager_ =
        shape.geometry_.instances == 1 &&
        fits_eager(call.algorithm, problem, chunks, bytes(layout.largest(), false), call.eager);
    std::map<uint64_t, uint32_t> known;
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        const uint64_t count = rounds ? layout.largest() : layout.range({}, chunk).count;
        const auto [found, is_new] =
            known.emplace(count, static_cast<uint32_t>(shape.lengths_.size()));
        shape.length_of_.push_back(found->second);
        if (!is_new) continue;
        Length length{.count = count, .full = count / shape.geometry_.segment};
        for (const bool is_inner : {false, true}) {
            length.full_bytes[is_inner] = bytes(shape.geometry_.segment, is_inner);
            length.rest_bytes[is_inner] = bytes(count % shape.geometry_.segment, is_inner);
        }
        shape.lengths_.push_back(length);
    }
    return shape;
}

uint64_t CallGeometry::count(uint32_t length, uint64_t instance) const {
    const Length &of = lengths_[length];
    if (instance < of.full) return geometry_.segment;
    return instance == of.full ? of.count % geometry_.segment : 0;
}

uint64_t CallGeometry::bytes(uint32_t length, uint64_t instance, bool is_inner) const {
    const Length &of = lengths_[length];
    if (instance < of.full) return of.full_bytes[is_inner];
    return instance == of.full ? of.rest_bytes[is_inner] : empty_bytes_;
}

uint64_t CallGeometry::all_bytes(uint32_t length, bool is_inner) const {
    const Length &of = lengths_[length];
    const uint64_t full = std::min(of.full, instances()), others = instances() - full;
    if (others == 0) return full * of.full_bytes[is_inner];
    return full * of.full_bytes[is_inner] + of.rest_bytes[is_inner] + (others - 1) * empty_bytes_;
}

// As in the engine, messages from other hosts lie in an inbox as large as the outbox.
uint32_t CallGeometry::lanes_for(uint32_t received) const {
    if (!has_hosts_ || received == 0) return geometry_.lanes;
    const uint64_t fitting = std::min<uint64_t>(
        limits_.arena_bytes / (received * geometry_.wire_bytes), limits_.slots / received);
    return static_cast<uint32_t>(std::clamp<uint64_t>(fitting, 1, geometry_.lanes));
}

// ---- RankProgram

namespace {

class ProgramBuilder {
public:
    ProgramBuilder(const Fused &fused, const SimulatedCall &call, const CallGeometry &shape)
        : fused_(fused), schedule_(fused.schedule), call_(call), shape_(shape),
          inner_(inner_codec(call.algorithm, call.problem.codec)),
          value_bytes_(static_cast<double>(type_bytes(call.problem.type))),
          has_zero_copy_(call.problem.codec.is_lossless() &&
                         vector_bytes(call.problem) >= call.zero_copy_bytes),
          places_in_series_(places_in_series(fused.schedule)) {}

    RankProgram build(TaskGraph graph, std::span<const uint32_t> number_of, uint32_t peers) {
        program_.graph = std::move(graph);
        program_.outbox = schedule_.outbox;
        program_.wires = schedule_.wires;
        program_.has_zero_copy = has_zero_copy_;
        program_.lanes = shape_.lanes_for(schedule_.wires - schedule_.outbox);
        for (const TaskGraph::GraphTask &range : program_.graph.tasks) add(range, number_of);
        index_receives(peers);
        return std::move(program_);
    }

private:
    void add(const TaskGraph::GraphTask &range, std::span<const uint32_t> number_of) {
        const Step &head = schedule_.steps[range.first];
        RankProgram::SimulatedTask task{.verb = head.verb,
                                        .is_inner = head.has(Step::inner),
                                        .length = shape_.length_of(head.chunk)};
        if (!computes(head.verb)) {
            task.place_in_series = places_in_series_[range.first];
            task.peer = number_of[head.peer];
            task.ordinal = head.ordinal;
            task.wire = head.verb == Verb::send ? head.src.index : head.dst.index;
        }
        if (head.verb == Verb::recv) task.receive = program_.receives++;
        task.pieces_first = static_cast<uint32_t>(program_.pieces.size());
        for (uint32_t i = range.first; i < range.last && computes(head.verb); i++)
            program_.pieces.push_back(piece(range, i));
        task.pieces_last = static_cast<uint32_t>(program_.pieces.size());
        for (uint32_t i = task.pieces_first; i < task.pieces_last; i++)
            task.ns_per_value += program_.pieces[i].ns_per_value;
        task.chunk_ns = call_.speeds.chunk_ns * (task.pieces_last - task.pieces_first);
        task.fills_first = slots_end();
        for (uint32_t i = range.first; i < range.last; i++)
            if (const Step &step = schedule_.steps[i]; step.verb == Verb::encode)
                program_.slots.push_back(step.dst.index);
        task.fills_last = task.releases_first = slots_end();
        for (uint32_t i = range.first; i < range.last; i++)
            if (const Step &step = schedule_.steps[i]; step.has(Step::releases))
                program_.slots.push_back(step.src.index);
        task.releases_last = slots_end();
        program_.tasks.push_back(task);
    }

    uint32_t slots_end() const { return static_cast<uint32_t>(program_.slots.size()); }

    // Whether peers read what the step encodes in the caller's buffers: an input, or a result that
    // the same task stores.
    bool is_read_in_place(const TaskGraph::GraphTask &range, const Step &encode) const {
        const auto steps =
            std::span(schedule_.steps).subspan(range.first, range.last - range.first);
        return has_zero_copy_ &&
               (encode.src.is(SlotKind::input) || std::ranges::any_of(steps, [&](const Step &step) {
                    return step.verb == Verb::decode && step.src == encode.dst &&
                           step.dst.is(SlotKind::output);
                }));
    }

    RankProgram::ComputeStep piece(const TaskGraph::GraphTask &range, uint32_t number) const {
        const Step &step = schedule_.steps[number];
        const ComputeSpeeds &speeds = call_.speeds;
        const auto &coding = step.has(Step::inner) ? speeds.inner : speeds.outer;
        const auto time = [&](double speed) {
            const double traffic =
                accesses(step, step.src) * step.sources + accesses(step, step.dst);
            return RankProgram::ComputeStep{step.verb,
                                            value_bytes_ * (1 / speed + traffic / speeds.memory)};
        };
        switch (step.verb) {
        case Verb::encode:
            if (call_.problem.codec.is_lossless() && step.leaves_values()) return {step.verb, 0};
            if (is_read_in_place(range, step)) return {step.verb, 0};
            return time(coding.encode);
        case Verb::decode: return time(coding.decode);
        case Verb::decode_add: return time(coding.decode_add);
        default: return time(speeds.copy / step.sources);
        }
    }

    // Returns how often the step passes through the slot's memory. Encoded values are few and do
    // not count.
    double accesses(const Step &step, Slot slot) const {
        if (slot.is(SlotKind::none)) return 0;
        if (slot.is(SlotKind::wire)) return is_lossless(step) ? 1 : 0;
        return slot.is(SlotKind::accumulator) && fused_.is_local[slot.index] ? 0 : 1;
    }
    bool is_lossless(const Step &step) const {
        return step.has(Step::inner) ? inner_.is_lossless() : call_.problem.codec.is_lossless();
    }

    void index_receives(uint32_t peers) {
        std::vector<uint32_t> &first = program_.first_of;
        first.assign(size_t{peers} + 1, 0);
        for (const RankProgram::SimulatedTask &task : program_.tasks)
            if (task.verb == Verb::recv) first[task.peer + 1]++;
        std::partial_sum(first.begin(), first.end(), first.begin());
        program_.receives_of.resize(program_.receives);
        for (uint32_t i = 0; i < program_.tasks.size(); i++) {
            const RankProgram::SimulatedTask &task = program_.tasks[i];
            if (task.verb == Verb::recv) program_.receives_of[first[task.peer] + task.ordinal] = i;
        }
    }

    const Fused &fused_;
    const Schedule &schedule_;
    const SimulatedCall &call_;
    const CallGeometry &shape_;
    const Codec inner_;
    const double value_bytes_;
    const bool has_zero_copy_;
    const std::vector<uint32_t> places_in_series_;
    RankProgram program_;
};

} // namespace

Result<RankProgram> make_program(const Schedule &author, const SimulatedCall &call,
                                 const CallGeometry &shape, std::span<const uint32_t> number_of,
                                 uint32_t peers) {
    QCCL_TRY(const Schedule placed, place_codec(author, call.problem.codec.owner));
    Fused fused = fuse(placed);
    const Dependencies dependencies = lower(fused.schedule);
    TaskGraph graph = make_tasks(fused.schedule, dependencies);
    return ProgramBuilder(fused, call, shape).build(std::move(graph), number_of, peers);
}

// ---- A rank that runs its program

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

void SimulatedRank::begin(LaneProgress &lane, uint64_t instance) {
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

void SimulatedRank::make_ready(LaneProgress &lane, uint32_t task) {
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
    LaneProgress &lane = lanes_[number];
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
    const RankProgram::SimulatedTask &task = program_.tasks[number];
    for (uint32_t i = task.fills_first; i < task.fills_last; i++)
        if (holds_[lane * program_.outbox + program_.slots[i]] != 0) return false;
    return true;
}

void SimulatedRank::take_slots(uint32_t lane, uint32_t number) {
    const RankProgram::SimulatedTask &task = program_.tasks[number];
    for (uint32_t i = task.fills_first; i < task.fills_last; i++) {
        const uint32_t wire = program_.slots[i], slot = lane * program_.outbox + wire;
        add_hold(slot);
        origins_[size_t{lane} * program_.wires + wire] = {number_, slot};
    }
}

void SimulatedRank::finish(Choice done) {
    LaneProgress &lane = lanes_[done.lane];
    const RankProgram::SimulatedTask &task = program_.tasks[done.task];
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
    LaneProgress &lane = lanes_[number];
    has_arrived_[this->arrival(arrival.call, task, arrival.instance)] = true;
    arrived(arrival.call, task, arrival.instance) = arrival.origin;
    if (arrival.call == call_ && !lane.is_over && lane.instance == arrival.instance &&
        lane.waits[task] == 0 && !lane.is_done[task])
        make_ready(lane, task);
}

bool SimulatedRank::release(uint32_t slot) {
    if (--holds_[slot] != 0) return false;
    held_--;
    LaneProgress &lane = lanes_[slot / program_.outbox];
    for (const uint32_t task : lane.parked) {
        lane.ready.push_back(task);
        std::push_heap(lane.ready.begin(), lane.ready.end(), std::greater<>());
    }
    const bool has_parked = !lane.parked.empty();
    lane.parked.clear();
    return has_parked || (program_.has_zero_copy && has_ended());
}

// ---- GOAL text

namespace {

class GoalRank {
public:
    GoalRank(const RankProgram &program, const CallGeometry &geometry)
        : program_(program), geometry_(geometry) {
        for (uint32_t task = 0; task < program.tasks.size(); task++)
            if (program.graph.after(task).empty()) last_.push_back(task);
    }

    std::string print(uint32_t rank) {
        append("rank %u {\n", rank);
        for (uint64_t instance = 0; instance < geometry_.instances(); instance++) add(instance);
        text_ += "}\n\n";
        return std::move(text_);
    }

private:
    template <class... Arguments> void append(const char *format, Arguments... arguments) {
        char line[128];
        std::snprintf(line, sizeof line, format, arguments...);
        text_ += line;
    }

    uint64_t label(uint64_t instance, uint32_t task) const {
        return instance * program_.tasks.size() + task + 1;
    }

    void add(uint64_t instance) {
        for (uint32_t task = 0; task < program_.tasks.size(); task++) add_task(instance, task);
        for (uint32_t task = 0; task < program_.tasks.size(); task++)
            for (const uint32_t next : program_.graph.after(task))
                require(label(instance, next), label(instance, task));
        if (instance < program_.lanes) return;
        for (uint32_t task = 0; task < program_.tasks.size(); task++)
            for (const uint32_t before : last_)
                if (program_.graph.waits[task] == 0)
                    require(label(instance, task), label(instance - program_.lanes, before));
    }

    void require(uint64_t later, uint64_t earlier) {
        append("l%" PRIu64 " requires l%" PRIu64 "\n", later, earlier);
    }

    void add_task(uint64_t instance, uint32_t number) {
        const RankProgram::SimulatedTask &task = program_.tasks[number];
        const uint64_t at = label(instance, number);
        if (computes(task.verb)) {
            const auto values = static_cast<double>(geometry_.count(task.length, instance));
            return append("l%" PRIu64 ": calc %.0f\n", at, std::round(task.ns_per_value * values));
        }
        const bool sends = task.verb == Verb::send;
        append("l%" PRIu64 ": %s %" PRIu64 "b %s %u tag %" PRIu64 "\n", at, sends ? "send" : "recv",
               geometry_.bytes(task.length, instance, task.is_inner), sends ? "to" : "from",
               task.peer, task.ordinal * geometry_.instances() + instance);
    }

    const RankProgram &program_;
    const CallGeometry &geometry_;
    std::vector<uint32_t> last_; // tasks that no other task waits for
    std::string text_;
};

} // namespace

Done write_goal(const SimulatedCall &call, const std::function<Done(const std::string &)> &write) {
    const Problem &problem = call.problem;
    QCCL_TRY(write("num_ranks " + std::to_string(problem.ranks) + "\n\n"));
    std::vector<uint32_t> own_numbers(problem.ranks);
    std::iota(own_numbers.begin(), own_numbers.end(), 0U);
    for (uint32_t rank = 0; rank < problem.ranks; rank++) {
        QCCL_TRY(const Schedule author,
                 emit(call.algorithm, problem.collective, problem.team(rank)));
        QCCL_TRY(const CallGeometry geometry,
                 CallGeometry::create(call, author.chunks, author.outbox, false));
        QCCL_TRY(const RankProgram program,
                 make_program(author, call, geometry, own_numbers, problem.ranks));
        QCCL_TRY(write(GoalRank(program, geometry).print(rank)));
    }
    return {};
}

} // namespace qccl
