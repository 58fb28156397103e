// Flows and timers of the event queue. A timer is never removed: next() skips it if its flow has
// ended, and sets it again if its flow ends later than the timer says.
#include "plan/activities.hpp"

#include <limits>

namespace qccl {

void Activities::begin(const Event &event, double amount, std::span<const FairShare::Use> uses,
                       double most_rate) {
    const uint32_t number = shares_.begin(uses, most_rate);
    if (number == flows_.size()) flows_.emplace_back();
    Flow &flow = flows_[number];
    flow = {.event = {event.kind, event.subject, number},
            .stamp = flow.stamp + 1,
            .left = amount,
            .since = now_,
            .timer = std::numeric_limits<double>::infinity()};
    is_settled_ = false;
}

void Activities::end(uint32_t number) {
    flows_[number].stamp++;
    shares_.end(number);
    is_settled_ = false;
}

// The stream keeps its flow, so the rates of other flows on these links do not change.
void Activities::continue_stream(const Event &ended, double bytes) {
    Flow &flow = flows_[ended.flow];
    flow.left = bytes;
    flow.since = now_;
    flow.end = now_ + bytes / flow.rate;
    set_timer(ended.flow);
}

// Computes rates only once for all changes that happen at the same time.
void Activities::settle() {
    if (is_settled_) return;
    is_settled_ = true;
    shares_.settle([&](uint32_t number) {
        Flow &flow = flows_[number];
        flow.left -= flow.rate * (now_ - flow.since);
        if (flow.left < 0) flow.left = 0;
        flow.since = now_;
        flow.rate = shares_.rate(number);
        flow.end = now_ + flow.left / flow.rate;
        if (flow.end < flow.timer) set_timer(number);
    });
}

// A timer that has become too early is set again when it expires.
void Activities::set_timer(uint32_t number) {
    Flow &flow = flows_[number];
    flow.timer = flow.end;
    timers_.push({flow.end, order_++, flow.event, flow.stamp});
}

std::optional<Activities::Event> Activities::next() {
    while (true) {
        if (timers_.empty() || timers_.top().time > now_) settle();
        if (timers_.empty()) return {};
        const Timer timer = timers_.top();
        timers_.pop();
        if (timer.event.flow != no_flow) {
            const Flow &flow = flows_[timer.event.flow];
            if (flow.stamp != timer.stamp || timer.time != flow.timer) continue;
            if (flow.end > timer.time) {
                set_timer(timer.event.flow);
                continue;
            }
        }
        now_ = timer.time;
        if (timer.event.kind == Kind::task && timer.event.flow != no_flow) end(timer.event.flow);
        return timer.event;
    }
}

} // namespace qccl
