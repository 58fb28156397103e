// Converts the steps of a call to trace events.
#include "engine/run/step_trace.hpp"

#include "codec/codec.hpp"

#include <algorithm>

namespace qccl {

static uint8_t work_of(Op::What what) {
    switch (what) {
    case Op::What::copy: return TraceWork::copy;
    case Op::What::begin_exact:
    case Op::What::add_exact:
    case Op::What::round_exact:
    case Op::What::reduce: return TraceWork::reduce;
    case Op::What::multiply: return TraceWork::reduce;
    case Op::What::divide: return TraceWork::divide;
    case Op::What::keep_error: return TraceWork::reduce;
    case Op::What::encode: return TraceWork::encode;
    case Op::What::decode:
    case Op::What::decode_add: return TraceWork::decode;
    case Op::What::write_header: break;
    }
    return 0;
}

uint32_t traced_shape(CallTracer &tracer, const Program &program) {
    const uint64_t key = program.shape.fingerprint() ^ program.asked_hash;
    if (const uint32_t known = tracer.find_shape(key)) return known;
    const Work &work = program.work;
    // Sums of integers are the caller's sums; the agreement on their scales is a call by itself.
    const bool is_shared = program.shared != nullptr;
    return tracer.add_shape(key, {.collective = program.own_call.value_or(work.called()),
                                  .type = is_shared ? program.shared->layout.type : work.type,
                                  .op = is_shared ? program.shared->op : work.op,
                                  .root = work.team.root,
                                  .count = work.count,
                                  .asked_codec = program.asked_codec,
                                  .asked_algorithm = program.asked_algorithm,
                                  .codec = spec(work.codec),
                                  .inner_codec = spec(work.inner_codec),
                                  .algorithm = work.algorithm,
                                  .bytes = program.raw_bytes,
                                  .wire_bytes = program.wire_bytes});
}

// Returns a number that is the same on both sides of a message, and hardly ever the same for two
// messages.
uint64_t StepTrace::link(uint32_t from, uint32_t to, uint64_t segment, uint32_t ordinal) const {
    uint64_t mixed = splitmix64(tracer_.comm().session ^ call_);
    mixed = splitmix64(mixed ^ (uint64_t{from} << 32 | to));
    return splitmix64(mixed ^ (segment << 32 | ordinal)) | 1;
}

void StepTrace::wait(uint64_t since, uint64_t now) {
    if (!has_waited_) return;
    has_waited_ = false;
    tracer_.add({.begin = since,
                 .end = now,
                 .peer = wait_.on,
                 .step = wait_.step == 0 ? TraceEvent::no_step : wait_.step - 1,
                 .segment = static_cast<uint32_t>(wait_.segment == 0 ? 0 : wait_.segment - 1),
                 .kind = TraceEvent::Kind::wait,
                 .detail = static_cast<uint8_t>(wait_.phase)});
}

void StepTrace::send(uint64_t since, uint64_t began, uint64_t now, const Step &step,
                     uint64_t segment, uint64_t bytes) {
    wait(since, began);
    tracer_.add({.begin = began,
                 .end = now,
                 .link = link(program_.work.team.rank, step.peer, segment, step.ordinal),
                 .value = bytes,
                 .peer = step.peer,
                 .step = static_cast<uint32_t>(&step - program_.schedule.steps.data()),
                 .segment = static_cast<uint32_t>(segment),
                 .kind = TraceEvent::Kind::send});
}

void StepTrace::recv(uint64_t began, uint64_t now, const Step &step, uint64_t segment,
                     uint64_t bytes) {
    tracer_.add({.begin = began,
                 .end = now,
                 .link = link(step.peer, program_.work.team.rank, segment, step.ordinal),
                 .value = bytes,
                 .peer = step.peer,
                 .step = static_cast<uint32_t>(&step - program_.schedule.steps.data()),
                 .segment = static_cast<uint32_t>(segment),
                 .kind = TraceEvent::Kind::recv});
}

void StepTrace::add_work(TraceEvent::Kind kind, uint64_t began, uint64_t now, const Task &task,
                         uint64_t segment, uint64_t count, uint32_t lane) {
    uint8_t work = 0;
    for (uint32_t i = task.first; i < task.last; i++)
        work = static_cast<uint8_t>(work | work_of(program_.ops[i].what));
    tracer_.add({.begin = began,
                 .end = now,
                 .value = count * type_bytes(program_.work.type),
                 .segment = static_cast<uint32_t>(segment),
                 .chunk = program_.ops[task.first].chunk,
                 .lane = static_cast<uint16_t>(lane),
                 .kind = kind,
                 .detail = work});
}

void StepTrace::launch(uint64_t began, uint64_t now, const Task &task, uint64_t segment,
                       uint64_t count, uint32_t lane) {
    add_work(TraceEvent::Kind::launch, began, now, task, segment, count, lane);
    if (lanes_.size() <= lane) lanes_.resize(lane + 1);
    lanes_[lane].launched.push_back(now);
}

// A stream does one task after the other, so a task begins no earlier than the one before has
// ended. The end is known only as the time at which the host saw it.
void StepTrace::done_on_device(const Task &task, uint64_t segment, uint64_t count, uint32_t lane) {
    DeviceLane &device = lanes_[lane];
    const uint64_t now = ticks_now();
    const uint64_t began = std::max(device.launched.front(), device.ended);
    device.launched.pop_front();
    device.ended = now;
    add_work(TraceEvent::Kind::device, began, now, task, segment, count, lane);
}

void StepTrace::eager_op(const EagerOp &op, uint64_t count) {
    slot_work_ = static_cast<uint8_t>(slot_work_ | work_of(op.what));
    slot_values_ += op.what == Op::What::write_header ? 0 : count;
}

void StepTrace::end_work() {
    const uint64_t now = ticks_now();
    if (slot_work_ != 0)
        tracer_.add({.begin = since_,
                     .end = now,
                     .value = slot_values_ * type_bytes(program_.work.type),
                     .kind = TraceEvent::Kind::work,
                     .detail = slot_work_});
    since_ = now;
    slot_work_ = 0;
    slot_values_ = 0;
}

// All other ranks read the eager slot.
void StepTrace::eager_posted() {
    const uint64_t now = ticks_now();
    tracer_.add({.begin = since_,
                 .end = now,
                 .link = link(program_.work.team.rank, TraceEvent::all_peers, 0, 0),
                 .value = program_.wire_bytes,
                 .peer = TraceEvent::all_peers,
                 .kind = TraceEvent::Kind::send});
    since_ = now;
}

// The receiver reads the eager slot in place, so the event covers no copy.
void StepTrace::eager(uint32_t peer, uint64_t bytes) {
    const uint64_t came = ticks_now();
    has_waited({peer, WaitPhase::eager});
    wait(since_, came);
    since_ = ticks_now();
    tracer_.add({.begin = came,
                 .end = since_,
                 .link = link(peer, TraceEvent::all_peers, 0, 0),
                 .value = bytes,
                 .peer = peer,
                 .kind = TraceEvent::Kind::recv});
}

void StepTrace::launched() {
    const uint64_t now = ticks_now();
    for (const auto &stage : program_.fast_path->stages)
        for (const EagerOp &op : stage)
            slot_work_ = static_cast<uint8_t>(slot_work_ | work_of(op.what));
    tracer_.add({.begin = since_,
                 .end = now,
                 .value = program_.raw_bytes,
                 .kind = TraceEvent::Kind::launch,
                 .detail = slot_work_});
    since_ = now;
}

void StepTrace::finished() {
    const uint64_t now = ticks_now();
    tracer_.add({.begin = since_,
                 .end = now,
                 .value = program_.raw_bytes,
                 .kind = TraceEvent::Kind::device,
                 .detail = slot_work_});
    has_waited({program_.work.team.rank, WaitPhase::device});
    wait(since_, now);
    since_ = now;
}

void StepTrace::met(uint32_t peer) {
    const uint64_t now = ticks_now();
    has_waited({peer, WaitPhase::eager});
    wait(since_, now);
    since_ = now;
}

} // namespace qccl
