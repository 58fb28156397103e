// Writes the events of calls into the ring.
#include "trace/call_tracer.hpp"

#include "base/clock.hpp"

#include <utility>

namespace qccl {

CallTracer::CallTracer(LoggedComm comm, bool wants_steps, Wake &wake)
    : comm_(std::move(comm)), wants_steps_(wants_steps), wake_(wake) {}

uint32_t CallTracer::add_shape(uint64_t key, LoggedShape shape) {
    if (shapes_.size() == most_shapes_known) shapes_.clear();
    shape.id = ++last_shape_;
    shape.comm = comm_.id;
    shapes_[key] = shape.id;
    const std::lock_guard lock(mutex_);
    new_shapes_.push_back(std::move(shape));
    return last_shape_;
}

std::vector<LoggedShape> CallTracer::take_new_shapes() {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_shapes_, {});
}

bool CallTracer::begin(const CallStart &call) {
    call_ = {.begin = ticks_now(),
             .call = call.number,
             .link = call.queued,
             .value = call.tag,
             .shape = call.shape};
    left_out_ = 0;
    has_begin_ = false;
    if (!wants_steps_) return false;
    const uint64_t skipped = skipped_groups_.load(std::memory_order_relaxed);
    if ((call.number / group_of_calls & skipped) != 0) return false;
    // A call is traced with all its steps or not at all, unless it has more steps than the ring has
    // room for.
    const size_t enough = ring_.capacity() / 2;
    if (ring_.room(enough) < enough) return false;
    has_begin_ = true;
    TraceEvent event = call_;
    event.kind = TraceEvent::Kind::call_begin;
    ring_.push(event);
    return true;
}

void CallTracer::end(bool has_failed) {
    call_.kind = TraceEvent::Kind::call_end;
    call_.end = ticks_now();
    call_.peer = left_out_;
    call_.detail = static_cast<uint8_t>((has_failed ? TraceEnd::failed : 0) |
                                        (has_begin_ ? TraceEnd::began : 0));
    if (ring_.room(1) >= 1)
        ring_.push(call_);
    else
        lost_.fetch_add(1, std::memory_order_relaxed);
    if (ring_.written() - woken_at_ < ring_.capacity() / 4) return;
    woken_at_ = ring_.written();
    wake_.release();
}

} // namespace qccl
