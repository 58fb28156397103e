// Computes the ranges of chunks and segments from the chunks' common length, searches the segment
// length and the number of lanes that fit the arena, and groups steps into runs.
#include "schedule/shape.hpp"

#include "base/hash.hpp"
#include "base/types.hpp"
#include "schedule/lower.hpp"

#include <algorithm>
#include <numeric>

namespace qccl {

// ---- Where chunks lie

bool has_input(Collective collective, const Team &team) {
    return !row_of(collective).has_one_source || team.rank == team.root;
}

bool has_output(Collective collective, const Team &team) {
    const CollectiveRow &row = row_of(collective);
    if (row.covers == Covers::before_own && team.rank == 0) return false;
    if (row.moves_on) return team.before(1) == team.root;
    return !row.has_one_result || team.rank == team.root;
}

bool has_slot(Collective collective, const Team &team, Slot slot) {
    const CollectiveRow &row = row_of(collective);
    const bool is_own = slot.index == team.rank;
    if (slot.is(SlotKind::input)) return has_input(collective, team) && (!row.gathers || is_own);
    if (slot.is(SlotKind::output)) return has_output(collective, team) && (!row.scatters || is_own);
    return true;
}

Layout::Layout(Collective collective, uint64_t count, const Team &team, uint32_t chunks,
               uint64_t grain, uint64_t spacing)
    : grain_(grain), chunks_(chunks) {
    if (has_part_per_rank(collective)) {
        stride_ = count;
        total_ = vector_count(collective, count, team.size);
        has_parts_ = true;
        const CollectiveRow &row = row_of(collective);
        if (row.exchanges) exchanging_ = team;
        if (!row.gathers) input_spacing_ = spacing == 0 ? count : spacing;
        if (!row.scatters) output_spacing_ = spacing == 0 ? count : spacing;
    } else {
        stride_ = round_up(count / chunks + (count % chunks != 0), grain);
        total_ = count;
    }
}

uint64_t VFormParts::common_total() const {
    uint64_t total = 0;
    if (are_common())
        for (const PartRange &part : received) total += part.count;
    return total;
}

uint32_t VFormParts::common_hash() const {
    if (!are_common()) return 0;
    return hash_counts(received, [](const PartRange &part) { return part.count; });
}

static uint64_t end_of(const std::vector<VFormParts::PartRange> &parts, Slot (*slot_of)(uint32_t),
                       Collective v_form, const Team &team) {
    uint64_t end = 0;
    for (uint32_t rank = 0; rank < parts.size(); rank++) {
        const auto [start, count] = parts[rank];
        if (count != 0 && has_slot(v_form, team, slot_of(rank))) end = std::max(end, start + count);
    }
    return end;
}

uint64_t sent_end(const VFormParts &parts, const Team &team) {
    return end_of(parts.sent, input, parts.v_form, team);
}

uint64_t received_end(const VFormParts &parts, const Team &team) {
    return end_of(parts.received, output, parts.v_form, team);
}

Layout::Layout(std::shared_ptr<const VFormParts> parts, const Team &team, uint32_t outbox,
               uint64_t grain)
    : grain_(grain), chunks_(team.size), parts_(std::move(parts)), outbox_(outbox) {
    for (const std::vector<VFormParts::PartRange> *each : {&parts_->sent, &parts_->received})
        for (const VFormParts::PartRange &part : *each) stride_ = std::max(stride_, part.count);
    if (row_of(parts_->v_form).exchanges) exchanging_ = team;
    total_ = stride_;
    if (!parts_->are_common()) return;
    for (const VFormParts::PartRange &part : parts_->received) {
        indices_.push_back(indices_.empty() ? 0 : total_);
        total_ = indices_.back() + part.count;
    }
}

const VFormParts::PartRange &Layout::part_of(Slot slot, uint32_t chunk) const {
    const uint32_t rank = exchanging_ ? exchanging_->partner_in(chunk) : chunk;
    const bool is_received =
        slot.is(SlotKind::output) || (slot.is(SlotKind::wire) && slot.index >= outbox_);
    return (is_received ? parts_->received : parts_->sent)[rank];
}

ElementRange Layout::range(Slot slot, uint32_t chunk) const {
    if (parts_) {
        const VFormParts::PartRange &part = part_of(slot, chunk);
        const bool is_callers = slot.is(SlotKind::input) || slot.is(SlotKind::output);
        return {.offset = is_callers ? part.start : 0,
                .count = part.count,
                .index = indices_.empty() ? 0 : indices_[chunk]};
    }
    const uint64_t begin = std::min(total_, chunk * stride_);
    const uint64_t end = std::min(total_, begin + stride_);
    const bool is_input = slot.is(SlotKind::input), is_output = slot.is(SlotKind::output);
    if (!is_input && !is_output) return {.offset = 0, .count = end - begin, .index = begin};
    if (!has_parts_) return {.offset = begin, .count = end - begin, .index = begin};
    const uint64_t place = exchanging_ ? exchanging_->partner_in(chunk) : chunk;
    const uint64_t offset = place * (is_input ? input_spacing_ : output_spacing_);
    return {.offset = offset, .count = end - begin, .index = begin};
}

ElementRange Layout::range(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const {
    ElementRange whole = range(slot, chunk);
    const uint64_t skipped = std::min(whole.count, instance * segment);
    return {.offset = whole.offset + skipped,
            .count = std::min(segment, whole.count - skipped),
            .index = whole.index + skipped};
}

bool Layout::has_segment(Slot slot, uint32_t chunk, uint64_t instance, uint64_t segment) const {
    return !is_pairwise() || instance == 0 || instance <= part_of(slot, chunk).count / segment;
}

uint64_t Layout::largest() const { return std::min(stride_, total_); }

// ---- Segments, lanes and runs

namespace {

constexpr uint64_t divide_up(uint64_t value, uint64_t by) { return value / by + (value % by != 0); }

// Segments and lanes are those of parts that never end, because another rank's parts may be longer
// than those of this rank. Each part ends in a segment that is shorter than the others.
Geometry cut_pairwise(const Layout &layout, uint32_t outbox, const Encoding &encoding,
                      const ShapeLimits &limits) {
    const uint64_t largest = layout.largest(), grain = layout.grain();
    Geometry g;
    if (encoding.needs_whole_chunks) {
        g.segment = std::max(grain, round_up(largest, grain));
        g.wire_bytes = round_up(encoding.most_bytes(g.segment), wire_alignment);
        g.arena_bytes = size_t{outbox} * g.wire_bytes;
        return g;
    }
    g.segment = round_up(std::max<uint64_t>(1, limits.segment_bytes / encoding.type_bytes), grain);
    g.lanes = std::max(1U, limits.max_lanes);
    if (outbox != 0) g.lanes = std::min(g.lanes, limits.slots / outbox);
    while (true) {
        g.wire_bytes = round_up(encoding.most_bytes(g.segment), wire_alignment);
        g.arena_bytes = size_t{g.lanes} * outbox * g.wire_bytes;
        if (g.arena_bytes <= limits.arena_bytes) break;
        if (g.segment > grain)
            g.segment = round_up(g.segment / 2, grain);
        else if (g.lanes > 1)
            g.lanes--;
        else
            break; // cannot be cut further: needs more than the arena
    }
    g.instances = largest / g.segment + 1;
    g.lanes = static_cast<uint32_t>(std::min<uint64_t>(g.lanes, g.instances));
    g.arena_bytes = size_t{g.lanes} * outbox * g.wire_bytes;
    return g;
}

} // namespace

Result<Geometry> cut(const Layout &layout, uint32_t outbox, const Encoding &encoding,
                     const ShapeLimits &limits) {
    if (outbox > limits.slots)
        return invalid_argument("%u wire slots are needed, and there are %u", outbox, limits.slots);
    if (layout.is_pairwise()) return cut_pairwise(layout, outbox, encoding, limits);
    const uint64_t largest = layout.largest(), grain = layout.grain();
    const uint64_t whole = std::max(grain, round_up(largest, grain));
    // Messages name their instance with 32 bits.
    const uint64_t fewest = round_up(std::max<uint64_t>(1, divide_up(largest, UINT32_MAX)), grain);
    const uint64_t least = encoding.needs_whole_chunks ? whole : std::min(fewest, whole);
    const uint64_t wanted = limits.parts != 0 ? divide_up(largest, limits.parts)
                                              : limits.segment_bytes / encoding.type_bytes;
    const uint64_t target = round_up(std::max<uint64_t>(1, wanted), grain);

    uint64_t segment = std::clamp(target, least, whole);
    uint32_t most_lanes = std::max(1U, limits.max_lanes);
    if (outbox != 0) most_lanes = std::min(most_lanes, limits.slots / outbox);
    while (true) {
        Geometry g;
        g.instances = std::max<uint64_t>(1, divide_up(largest, segment));
        // Equal segments, because a short one at the end would leave the lanes idle.
        g.segment = std::max(grain, round_up(divide_up(largest, g.instances), grain));
        g.lanes = static_cast<uint32_t>(std::min<uint64_t>(most_lanes, g.instances));
        g.wire_bytes = round_up(encoding.most_bytes(std::min(g.segment, largest)), wire_alignment);
        g.arena_bytes = size_t{g.lanes} * outbox * g.wire_bytes;
        if (g.arena_bytes <= limits.arena_bytes) return g;

        if (g.segment > least)
            segment = std::max(least, round_up(g.segment / 2, grain));
        else if (g.lanes > 1)
            most_lanes = g.lanes - 1;
        else
            return g; // cannot be cut further: needs more than the arena
    }
}

namespace {

// Puts steps into groups, which are issued in the order of their numbers. A group is a run of
// joined steps, or a single send or recv.
class Grouping {
public:
    explicit Grouping(const Schedule &placed)
        : lowered_(placed), deps_(lower(lowered_)), group_of_(placed.steps.size()),
          run_of_chunk_(placed.chunks, no_index) {
        for (uint32_t i = 0; i < placed.steps.size(); i++) {
            group_of_[i] = group_for(i);
            groups_ = std::max(groups_, group_of_[i] + 1);
        }
    }

    Fused build(const Schedule &placed) const {
        Fused fused{.schedule = placed, .is_local = find_local(placed)};
        std::vector<uint32_t> next(groups_ + 1); // index of the group's next step
        for (const uint32_t group : group_of_) next[group + 1]++;
        std::partial_sum(next.begin(), next.end(), next.begin());
        std::vector<uint32_t> ends(next.begin() + 1, next.end());
        for (size_t i = 0; i < placed.steps.size(); i++) {
            const uint32_t group = group_of_[i], at = next[group]++;
            Step step = placed.steps[i];
            step.flags &= static_cast<uint8_t>(~Step::joins_next);
            if (at + 1 != ends[group]) step.flags |= Step::joins_next;
            fused.schedule.steps[at] = step;
        }
        return fused;
    }

private:
    uint32_t group_for(uint32_t number) {
        const Step &step = lowered_.steps[number];
        const uint32_t next = groups_;
        if (!computes(step.verb)) {
            if (step.verb == Verb::recv) last_recv_ = next;
            return next;
        }
        uint32_t &run = run_of_chunk_[step.chunk];
        if (run == no_index || !may_join(number, run)) run = next;
        return run;
    }

    // A step may move ahead of sends only. A step that moved ahead of a recv would tear an
    // accumulator's run in two.
    bool may_join(uint32_t number, uint32_t run) const {
        if (last_recv_ != no_index && last_recv_ > run) return false;
        const auto waits = deps_.of(number);
        return std::all_of(waits.begin(), waits.end(),
                           [&](uint32_t step) { return group_of_[step] <= run; });
    }

    std::vector<bool> find_local(const Schedule &placed) const {
        std::vector<bool> is_local(placed.chunks, true);
        std::vector<uint32_t> home(placed.chunks, no_index);
        const auto note = [&](Slot slot, uint32_t group) {
            if (!slot.is(SlotKind::accumulator)) return;
            if (home[slot.index] == no_index)
                home[slot.index] = group;
            else if (home[slot.index] != group)
                is_local[slot.index] = false;
        };
        for (uint32_t i = 0; i < placed.steps.size(); i++) {
            const Step &step = placed.steps[i];
            // A step that stores anew does not need what the accumulator held before.
            if (step.dst.is(SlotKind::accumulator) && !accumulates(step.verb))
                home[step.dst.index] = group_of_[i];
            note(step.dst, group_of_[i]);
            for (uint32_t k = 0; k < step.sources; k++) note(step.src.after(k), group_of_[i]);
        }
        return is_local;
    }

    Schedule lowered_;
    const Dependencies deps_;
    std::vector<uint32_t> group_of_;     // by step
    std::vector<uint32_t> run_of_chunk_; // the latest run of each chunk
    uint32_t groups_ = 0;
    uint32_t last_recv_ = no_index;
};

} // namespace

Fused fuse(const Schedule &placed) { return Grouping(placed).build(placed); }

} // namespace qccl
