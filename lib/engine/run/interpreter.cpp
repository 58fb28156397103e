// Runs the tasks of all lanes in turn, charges the time to the counters, and waits only when no
// task can go on.
#include "engine/run/interpreter.hpp"

#include "engine/run/eager_parts.hpp"
#include "engine/run/pipeline_lane.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl {

namespace {

bool are_slots_free(const Transport &transport, uint32_t first, uint32_t slots) {
    for (uint32_t slot = first; slot < first + slots; slot++)
        if (!transport.is_free(slot)) return false;
    return true;
}

// Readers know bytes by their address, so slots may move only when no peer reads any slot.
bool has_to_move_slots(const EngineMemory &memory, const Program &program) {
    return memory.slot_bytes != program.geometry.wire_bytes;
}

uint64_t &agreed_by(EngineMemory &memory, const Program &program) {
    return memory.agreed[program.shape.fingerprint() % memory.agreed.size()];
}

// A wrong count shows in the first message. By then this rank has read its caller's buffer as far
// as its own count says, perhaps past the buffer's end. So all ranks meet before the first call of
// each program shape, and a wild count makes a new shape. Meeting in every call would keep the
// ranks in lockstep, which costs far more than the meeting itself. A call that fits an eager slot
// skips the meeting: that many bytes are read in any case. So does a call in which only two ranks
// know a count: ranks with few bytes would not come, and no rank could tell a wild count.
//
// A program whose 64-bit fingerprint is by chance that of an agreed one skips its meeting, on every
// rank that runs it. That harms only a call that is wrong anyway: a right call needs no meeting,
// and messages carry hashes of calls in any case, so a wrong one still fails, but this rank may
// have read past its caller's buffer before that.
bool has_to_meet(EngineMemory &memory, const Transport &transport, const Program &program) {
    return !program.layout.is_pairwise() && program.raw_bytes > transport.eager_slot_bytes() &&
           agreed_by(memory, program) != program.shape.fingerprint();
}

} // namespace

bool begins_without_wait(const EngineMemory &memory, const Transport &transport,
                         const Program &program) {
    return !has_to_move_slots(memory, program) ||
           (are_slots_free(transport, 0, memory.used_slots) &&
            are_slots_free(transport, transport.slots(), memory.used_recv_buffers));
}

template <class Trace>
Interpreter<Trace>::Interpreter(const EngineContext &engine, const Program &program,
                                const Call &call, bool streams, Trace &trace,
                                const ExchangedParts *exchanged)
    : transport_(engine.transport), device_(engine.device), memory_(engine.memory),
      counters_(engine.counters), program_(program), call_(call), trace_(trace),
      exchanged_(exchanged), executor_(engine.device, engine.memory, program, call, streams),
      store_(engine.memory.stores.of(program.raw_bytes, program.work.codec.is_lossless())),
      progresses_between_steps_(
          program.geometry.wire_bytes > Transport::short_message_bytes &&
          (program.geometry.wire_bytes < Transport::long_message_bytes || program.overflows)) {}

template <class Trace> Done Interpreter<Trace>::run() {
    QCCL_TRY(begin());
    return go_on();
}

template <class Trace> Done Interpreter<Trace>::go_on() {
    if (is_meeting_) {
        trace_.has_waited({program_.work.team.rank, WaitPhase::meeting});
        QCCL_TRY(transport_.await_all());
        QCCL_TRY(end_meeting());
    }
    while (!has_ended_) {
        QCCL_TRY(const bool has_moved, step());
        if (!has_moved) QCCL_TRY(wait(what_to_await()));
    }
    return {};
}

template <class Trace> Done Interpreter<Trace>::begin() {
    ticks_ = ticks_now();
    is_meeting_ = has_to_meet(memory_, transport_, program_);
    return is_meeting_ ? Done() : prepare();
}

template <class Trace> Result<bool> Interpreter<Trace>::step() {
    if (is_meeting_) {
        QCCL_TRY(const bool have_met, transport_.have_all_begun());
        if (have_met) QCCL_TRY(end_meeting());
        return have_met;
    }
    if (running_ == 0) return try_end();
    QCCL_TRY(const bool has_moved, advance_any());
    if (has_moved && progresses_between_steps_) transport_.progress();
    return has_moved;
}

template <class Trace> Done Interpreter<Trace>::prepare() {
    const Geometry &geometry = program_.geometry;
    // On the host one set of tile accumulators serves the rank, which does one task at a time. On a
    // GPU each lane needs its own set, because lanes run side by side.
    const size_t tile_owners = memory_.gpu ? geometry.lanes : 1;
    QCCL_TRY(grow(memory_.tiles, device_,
                  tile_owners * program_.tile_buffers * program_.sum_bytes(program_.tile)));
    if (memory_.gpu)
        QCCL_TRY(prepare_gpu(memory_, device_, program_, geometry.lanes));
    else
        QCCL_TRY(grow(memory_.scratch, device_, program_.tile_payload_bytes));
    QCCL_TRY(grow(memory_.segments, device_,
                  size_t{geometry.lanes} * program_.segment_buffers *
                      program_.sum_bytes(program_.segment_values)));
    QCCL_TRY(memory_.unpacked.prepare(device_, program_));
    QCCL_TRY(cut_outbox());
    QCCL_TRY(place_wires());
    if (program_.allows_zero_copy && !memory_.gpu && call_.parts.empty()) allow_zero_copy();
    if (memory_.lanes.size() < geometry.lanes) memory_.lanes.resize(geometry.lanes);
    lanes_ = std::span(memory_.lanes).first(geometry.lanes);
    for (uint32_t i = 0; i < lanes_.size(); i++) lanes_[i].begin(program_, i, i);
    running_ = program_.tasks.empty() ? 0 : lanes_.size();
    return {};
}

template <class Trace> Done Interpreter<Trace>::end_meeting() {
    is_meeting_ = false;
    agreed_by(memory_, program_) = program_.shape.fingerprint();
    charge_wait();
    return prepare();
}

// Peers finish without this rank, because everything that they wait for has been sent.
template <class Trace> Done Interpreter<Trace>::cut_outbox() {
    if (has_to_move_slots(memory_, program_)) {
        QCCL_TRY(await_free(0, memory_.used_slots));
        QCCL_TRY(await_free(transport_.slots(), memory_.used_recv_buffers));
        memory_.used_slots = memory_.used_recv_buffers = 0;
    }
    const uint32_t lanes = program_.geometry.lanes;
    memory_.slot_bytes = program_.geometry.wire_bytes;
    memory_.used_slots = std::max(memory_.used_slots, lanes * program_.schedule.outbox);
    memory_.used_recv_buffers =
        std::max(memory_.used_recv_buffers, lanes * program_.recv_buffers());
    return {};
}

template <class Trace> Done Interpreter<Trace>::place_wires() {
    if (!program_.overflows) {
        executor_.use(transport_.outbox(), transport_.inbox(), memory_.device_outbox);
        return {};
    }
    std::vector<ByteRange> places = overflow_places(program_);
    const ByteRange &last = places.back();
    QCCL_TRY(const std::span<std::byte> memory, transport_.overflow(last.offset + last.bytes));
    executor_.use_overflow(memory, std::move(places));
    return {};
}

template <class Trace> Done Interpreter<Trace>::await_free(uint32_t first, uint32_t slots) {
    while (!are_slots_free(transport_, first, slots))
        QCCL_TRY(wait({program_.work.team.rank, WaitPhase::readers}));
    waiting_.reset(); // cut_outbox() goes on without a charge
    return {};
}

template <class Trace> void Interpreter<Trace>::allow_zero_copy() {
    const Windows &windows = transport_.windows();
    executor_.allow_zero_copy({.send = windows.refer_to(call_.send, program_.send_bytes),
                               .recv = windows.refer_to(call_.recv, program_.recv_bytes)});
}

// The caller may change its buffers when the call returns, so no peer may read them after that.
// Memory that exists for this call alone ends then too.
template <class Trace> bool Interpreter<Trace>::try_end() {
    const bool has_readers = executor_.has_zero_copy() || program_.overflows;
    if (has_readers &&
        !are_slots_free(transport_, 0, program_.geometry.lanes * program_.schedule.outbox))
        return false;
    if (program_.overflows &&
        !are_slots_free(transport_, transport_.slots(), program_.recv_buffers()))
        return false;
    charge_wait();
    has_ended_ = true;
    return true;
}

template <class Trace> PipelineLane &Interpreter<Trace>::oldest() {
    return *std::min_element(
        lanes_.begin(), lanes_.end(), [](const PipelineLane &a, const PipelineLane &b) {
            return a.is_done() != b.is_done() ? b.is_done() : a.instance() < b.instance();
        });
}

template <class Trace> Result<bool> Interpreter<Trace>::advance_any() {
    const uint32_t first = oldest().number();
    bool has_moved = false;
    for (uint32_t i = 0; i < lanes_.size(); i++) {
        PipelineLane &lane = lanes_[(first + i) % lanes_.size()];
        if (lane.is_done()) continue;
        QCCL_TRY(const bool has_lane_moved, advance(lane, i == 0));
        has_moved |= has_lane_moved;
        if (lane.is_done() && !begin_next(lane)) running_--;
        // Older instances go first: peers wait for their messages, and their bytes are in the
        // cache.
        if (has_lane_moved) break;
    }
    return has_moved;
}

template <class Trace>
Result<bool> Interpreter<Trace>::advance(PipelineLane &lane, bool is_oldest) {
    bool has_worked = false;
    QCCL_TRY(bool has_moved, take_done(lane));
    const uint32_t end = lane.base() + lane.in_window();
    for (uint32_t i = lane.base(); i < end; i++) {
        if (!lane.is_ready(i)) continue;
        const Task &task = program_.tasks[i];
        const bool is_work = task.kind == Task::Kind::work;
        // Computing takes so long that meanwhile a message for an older instance may have come.
        if (has_worked && is_work && !is_oldest) continue;
        QCCL_TRY(const Progress progress, try_task(lane, i));
        if (progress == Progress::none) continue;
        if (progress == Progress::done) lane.finish(i);
        has_moved = true;
        has_worked |= is_work;
    }
    lane.advance();
    return has_moved;
}

template <class Trace> bool Interpreter<Trace>::begin_next(PipelineLane &lane) {
    const uint64_t next = lane.instance() + lanes_.size();
    if (next >= program_.geometry.instances) return false;
    lane.begin(program_, lane.number(), next);
    return true;
}

static WaitPhase phase_of(Task::Kind kind) {
    switch (kind) {
    case Task::Kind::send: return WaitPhase::mailbox_space;
    case Task::Kind::recv: return WaitPhase::message;
    case Task::Kind::work: break;
    }
    return WaitPhase::readers;
}

template <class Trace> Wait Interpreter<Trace>::what_to_await() {
    Wait wait(program_.work.team.rank);
    if (running_ == 0) {
        wait.phase = WaitPhase::readers;
        return wait;
    }
    PipelineLane &lane = oldest();
    wait.segment = lane.instance() + 1;
    wait.segments = program_.geometry.instances;
    if (memory_.gpu && memory_.gpu->is_busy()) {
        // The rank may be ready for a message too, but a peer's time begins when the device is
        // idle.
        wait.phase = WaitPhase::device;
        wait.is_brief = true;
        return wait;
    }
    for (uint32_t i = lane.base(); i < lane.base() + lane.in_window(); i++) {
        if (!lane.is_ready(i)) continue;
        const Task &task = program_.tasks[i];
        wait.on = task.awaited;
        wait.phase = phase_of(task.kind);
        if (task.kind == Task::Kind::work) break; // holds ops, so there is no step to name
        wait.step = task.first + 1;
        wait.steps = static_cast<uint32_t>(program_.schedule.steps.size());
        break;
    }
    return wait;
}

template <class Trace>
Result<typename Interpreter<Trace>::Progress> Interpreter<Trace>::try_task(PipelineLane &lane,
                                                                           uint32_t number) {
    const Task &task = program_.tasks[number];
    if (program_.layout.is_pairwise() && !executor_.has_segment(lane, task)) return Progress::done;
    if (exchanged_ && exchanged_->has(task, program_)) return Progress::done;
    if (task.kind == Task::Kind::work) return try_work(lane, number);
    QCCL_TRY(const bool is_done,
             task.kind == Task::Kind::send ? try_send(lane, task) : try_recv(lane, task));
    return is_done ? Progress::done : Progress::none;
}

template <class Trace>
Result<bool> Interpreter<Trace>::try_send(PipelineLane &lane, const Task &task) {
    const Step &step = program_.schedule.steps[task.first];
    const MessageTag tag{.instance = static_cast<uint32_t>(lane.instance()),
                         .ordinal = step.ordinal};
    const MessageView &wire = lane.wire(step.src.index).view;
    const uint64_t since = ticks_, began = trace_.resumed_at(since);
    const auto when = task.goes_with_next ? Transport::Sends::with_next : Transport::Sends::at_once;
    QCCL_TRY(const bool is_sent, transport_.send(step.peer, tag, wire, when));
    if (!is_sent) return false;
    waiting_.reset();
    const bool is_callers =
        wire.origin == program_.work.team.rank && wire.zero_copy.window != device_window;
    if (is_callers) counters_.lent_bytes.add(wire.zero_copy.bytes);
    if (!program_.unpacked_places.empty())
        counters_.wire_bytes.add(wire.bytes + wire.zero_copy.bytes);
    release_uses(lane, task);
    charge(counters_.wire_ticks);
    trace_.send(since, began, ticks_, step, lane.instance(), wire.bytes + wire.zero_copy.bytes);
    return true;
}

template <class Trace>
Result<bool> Interpreter<Trace>::try_recv(PipelineLane &lane, const Task &task) {
    const Step &step = program_.schedule.steps[task.first];
    const MessageTag tag{.instance = static_cast<uint32_t>(lane.instance()),
                         .ordinal = step.ordinal};
    const RecvBuffer buffer = executor_.recv_buffer(lane, step.dst.index, transport_.slots());
    QCCL_TRY(const auto view, transport_.receive(step.peer, tag, buffer));
    if (!view) return false;
    // The polls until now have found nothing, so the time counts as waiting.
    charge_wait();
    const uint64_t began = ticks_;
    if (program_.layout.is_pairwise())
        QCCL_TRY(check_part(lane, step, *view, executor_.range(lane, step.dst, step.chunk).count));
    QCCL_TRY(executor_.take(lane, step, *view, task.readers));
    if (call_.sampled_nmse) merge_sampled_nmse(*view);
    if (task.readers == 0) transport_.release(*view);
    const MessageView &held = lane.wire(step.dst.index).view;
    charge(counters_.wire_ticks);
    trace_.recv(began, ticks_, step, lane.instance(), held.bytes + held.zero_copy.bytes);
    return true;
}

// Each part ends in a segment that is shorter than the others, so the first segment in which the
// counts differ tells of it. A sender whose part is longer has more segments.
template <class Trace>
Done Interpreter<Trace>::check_part(const PipelineLane &lane, const Step &step,
                                    const MessageView &view, uint64_t expected) const {
    const auto sent = stated_count({view.data, view.bytes});
    if (!sent || *sent == expected) return {};
    const Geometry &geometry = program_.geometry;
    const uint64_t before = lane.instance() * geometry.segment;
    const bool ends_here = *sent < geometry.segment || program_.work.codec.has_whole_buckets();
    const uint64_t own = program_.layout.range(step.dst, step.chunk).count;
    Error error = other_count(program_, step.peer, before + *sent, !ends_here, own);
    return error.compared(static_cast<int64_t>(before + expected),
                          static_cast<int64_t>(before + *sent));
}

// The messages that this rank sends from now on carry the larger value further. Each rank's values
// are part of some chunk of every rank's result, so in the end all ranks know the largest value.
template <class Trace> void Interpreter<Trace>::merge_sampled_nmse(const MessageView &wire) {
    const uint16_t theirs = sampled_nmse({wire.data, header_bytes});
    *call_.sampled_nmse = std::max(*call_.sampled_nmse, theirs);
}

template <class Trace>
Result<typename Interpreter<Trace>::Progress> Interpreter<Trace>::try_work(PipelineLane &lane,
                                                                           uint32_t number) {
    const Task &task = program_.tasks[number];
    if (!may_begin(lane, task)) return Progress::none;
    if (memory_.gpu) return try_start(lane, number);
    charge_wait();
    const uint64_t began = ticks_, count = count_of(lane, task);
    const uint32_t stored = executor_.run(lane, task, store_.streams());
    QCCL_TRY(executor_.outcome());
    executor_.complete_chunks(lane, task);
    release_uses(lane, task);
    charge_work(stored, count);
    trace_.work(began, ticks_, task, lane.instance(), count);
    return Progress::done;
}

template <class Trace>
Result<typename Interpreter<Trace>::Progress> Interpreter<Trace>::try_start(PipelineLane &lane,
                                                                            uint32_t number) {
    if (!memory_.gpu->has_room(lane.number())) return Progress::none;
    charge_wait();
    const Task &task = program_.tasks[number];
    const uint64_t began = ticks_;
    QCCL_TRY(executor_.launch(lane, task, memory_.gpu->launcher(lane.number())));
    QCCL_TRY(memory_.gpu->start(lane.number(), number));
    lane.start(number);
    charge(counters_.encode_ticks);
    trace_.launch(began, ticks_, task, lane.instance(), count_of(lane, task), lane.number());
    return Progress::started;
}

template <class Trace> Result<bool> Interpreter<Trace>::take_done(PipelineLane &lane) {
    if (!memory_.gpu) return false;
    bool has_moved = false;
    while (true) {
        QCCL_TRY(const auto number, memory_.gpu->take_done(lane.number()));
        if (!number) break;
        const Task &task = program_.tasks[*number];
        executor_.complete_chunks(lane, task);
        release_uses(lane, task);
        lane.finish_started(*number);
        trace_.done_on_device(task, lane.instance(), count_of(lane, task), lane.number());
        has_moved = true;
    }
    if (!has_moved) return false;
    waiting_.reset();
    const uint64_t since = ticks_;
    charge(counters_.copy_ticks);
    trace_.wait(since, ticks_);
    return true;
}

// Returns true if no peer reads what the task is going to write.
template <class Trace> bool Interpreter<Trace>::may_begin(PipelineLane &lane, const Task &task) {
    for (uint32_t i = task.first; i < task.last; i++) {
        const Op &op = program_.ops[i];
        if (op.what == Op::What::write_header &&
            !transport_.is_free(executor_.slot(lane, op.dst.index)))
            return false;
        if (executor_.has_zero_copy() && is_read_by_peers(lane, op)) return false;
    }
    return true;
}

// Checks this lane only: other instances give peers other elements to read.
template <class Trace> bool Interpreter<Trace>::is_read_by_peers(PipelineLane &lane, const Op &op) {
    const std::span<const std::byte> range = executor_.overwritten(lane, op);
    const auto wires = lane.own_wires();
    return std::any_of(wires.begin(), wires.end(), [&](const HeldView &held) {
        return held.shares_bytes_with(range) &&
               (held.readers != 0 || !transport_.is_free(held.view.slot));
    });
}

template <class Trace> void Interpreter<Trace>::release_uses(PipelineLane &lane, const Task &task) {
    for (uint32_t i = task.uses_first; i < task.uses_last; i++) {
        HeldView &held = lane.wire(program_.uses[i]);
        if (held.readers == 0) continue; // an own wire slot without zero copy
        const bool is_received = program_.uses[i] >= program_.schedule.outbox;
        if (--held.readers == 0 && is_received) transport_.release(held.view);
    }
}

template <class Trace> Done Interpreter<Trace>::wait(const Wait &what) {
    trace_.has_waited(what);
    if (!waiting_) waiting_.emplace(transport_);
    return transport_.wait(what);
}

template <class Trace> void Interpreter<Trace>::charge_wait() {
    waiting_.reset();
    const uint64_t since = ticks_;
    charge(counters_.wait_ticks);
    trace_.wait(since, ticks_);
}

template <class Trace> void Interpreter<Trace>::charge(Counter &counter) {
    const uint64_t now = ticks_now();
    counter.add(now - ticks_);
    ticks_ = now;
}

// A tile passes through several operations, so storing what peers read is charged its share of the
// time by the number of operations.
template <class Trace> void Interpreter<Trace>::charge_work(uint32_t stored, uint64_t count) {
    const uint64_t now = ticks_now();
    if (stored != 0 && count != 0)
        store_.took(static_cast<double>(now - ticks_) / static_cast<double>(count));
    const uint64_t encoding = (now - ticks_) * stored / std::max<size_t>(1, memory_.steps.size());
    counters_.encode_ticks.add(encoding);
    counters_.copy_ticks.add(now - ticks_ - encoding);
    ticks_ = now;
}

template class Interpreter<NoTrace>;
template class Interpreter<StepTrace>;

} // namespace qccl
