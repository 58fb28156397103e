// The author's verbs append steps.
#include "schedule/schedule.hpp"

#include <algorithm>
#include <limits>

namespace qccl {

namespace {

uint32_t chunk_or(uint32_t chunk, Slot slot) {
    return chunk == Schedule::chunk_of_slot ? slot.index : chunk;
}

void count_wires(Schedule &schedule, Slot slot, uint32_t slots = 1) {
    if (slot.is(SlotKind::wire)) schedule.wires = std::max(schedule.wires, slot.index + slots);
}

} // namespace

void Schedule::send(uint32_t peer, Slot src, uint32_t chunk) {
    count_wires(*this, src);
    steps.push_back({.verb = Verb::send, .src = src, .chunk = chunk_or(chunk, src), .peer = peer});
}

void Schedule::recv(uint32_t peer, Slot dst, uint32_t chunk) {
    count_wires(*this, dst);
    steps.push_back({.verb = Verb::recv, .dst = dst, .chunk = chunk_or(chunk, dst), .peer = peer});
}

void Schedule::reduce(Slot dst, Slot src, uint32_t sources) {
    constexpr uint32_t most = std::numeric_limits<uint16_t>::max();
    count_wires(*this, src, sources);
    for (uint32_t done = 0; done < sources; done += most) {
        const auto part = static_cast<uint16_t>(std::min(most, sources - done));
        steps.push_back({.verb = Verb::reduce,
                         .sources = part,
                         .dst = dst,
                         .src = src.after(done),
                         .chunk = dst.index});
    }
}

void Schedule::reduce_as_encoded(Slot dst, Slot src) {
    reduce(dst, src);
    steps.back().flags |= Step::as_encoded;
}

void Schedule::make_common(uint32_t first, uint32_t ordinal) {
    Step &sum = steps.back();
    sum.flags |= Step::common;
    sum.peer = first;
    sum.ordinal = ordinal;
}

void Schedule::copy(Slot dst, Slot src) {
    count_wires(*this, src);
    steps.push_back({.verb = Verb::copy, .dst = dst, .src = src, .chunk = dst.index});
}

void Schedule::finish(Slot dst, Slot src) {
    copy(dst, src);
    steps.back().flags |= Step::finishes;
}

} // namespace qccl
