// Computes the ranges of chunks and segments from the chunks' common length.
#include "schedule/layout.hpp"

#include "base/round_up.hpp"

#include <algorithm>

namespace qccl {

bool has_slot(Collective collective, const Team &team, Slot slot) {
    if (slot.is(SlotKind::input)) {
        if (collective == Collective::all_gather) return slot.index == team.rank;
        if (collective == Collective::broadcast) return team.rank == team.root;
    }
    if (slot.is(SlotKind::output) && collective == Collective::reduce_scatter)
        return slot.index == team.rank;
    return true;
}

Layout::Layout(Collective collective, uint64_t count, const Team &team, uint32_t chunks,
               uint64_t grain)
    : grain_(grain), chunks_(chunks) {
    if (has_part_per_rank(collective)) {
        stride_ = count;
        total_ = vector_count(collective, count, team.size);
        const uint64_t own = count * team.rank;
        if (collective == Collective::reduce_scatter)
            output_base_ = own;
        else
            input_base_ = own;
    } else {
        stride_ = round_up(count / chunks + (count % chunks != 0), grain);
        total_ = count;
    }
}

ElementRange Layout::range(Slot slot, uint32_t chunk) const {
    const uint64_t begin = std::min(total_, chunk * stride_);
    const uint64_t end = std::min(total_, begin + stride_);
    uint64_t offset = 0;
    if (slot.is(SlotKind::input)) offset = begin - input_base_;
    if (slot.is(SlotKind::output)) offset = begin - output_base_;
    return {.offset = offset, .count = end - begin, .index = begin};
}

ElementRange Layout::range(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const {
    ElementRange whole = range(slot, chunk);
    const uint64_t skipped = std::min(whole.count, instance * segment);
    return {.offset = whole.offset + skipped,
            .count = std::min(segment, whole.count - skipped),
            .index = whole.index + skipped};
}

uint64_t Layout::largest() const { return std::min(stride_, total_); }

} // namespace qccl
