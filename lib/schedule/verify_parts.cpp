// Checks each step's operands, peer, ordinal and flags; checks each access against the last write
// of its slot and the reads since, by searching the dependencies backwards; and stores equal
// expressions once.
#include "schedule/verify.hpp"

#include "schedule/schedule.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cstdio>
#include <utility>

namespace qccl {

// ---- Steps by themselves

namespace {

class Structure {
public:
    Structure(const Schedule &schedule, Collective collective, const Team &team)
        : s_(schedule), collective_(collective), team_(team) {}

    Done run() {
        for (const Step &step : s_.steps) encodes_ += step.verb == Verb::encode;
        has_ordinal_.assign(std::max(encodes_, Step::common_ordinals), false);
        for (size_t i = 0; i < s_.steps.size(); i++)
            if (const char *reason = fault(i))
                return wrong_step(team_.rank, i, s_.steps[i], reason);
        return {};
    }

private:
    const char *fault(size_t number) {
        const Step &step = s_.steps[number];
        if (step.verb > Verb::decode_add) return "is no step";
        if (step.chunk >= s_.chunks) return "names a chunk that does not exist";
        if (const char *reason = step.verb == Verb::send ? nullptr : fault_of(step.dst, step))
            return reason;
        for (uint32_t i = 0; step.verb != Verb::recv && i < step.sources; i++)
            if (const char *reason = fault_of(step.src.after(i), step)) return reason;
        if (const char *reason =
                computes(step.verb) ? fault_of_computing(step) : fault_of_moving(step))
            return reason;
        return fault_of_flags(number);
    }

    // Checks an operand: its kind exists on this rank, its index is in range, and it belongs to the
    // step's chunk.
    const char *fault_of(Slot slot, const Step &step) const {
        if (slot.is(SlotKind::none)) return "lacks an operand";
        if (slot.is(SlotKind::wire))
            return slot.index < s_.wires ? nullptr : "names a wire slot that does not exist";
        if (slot.index != step.chunk) return "mixes chunks";
        if (!has_slot(collective_, team_, slot))
            return "names a buffer that this rank does not have";
        return nullptr;
    }

    const char *fault_of_moving(const Step &step) const {
        const bool sends = step.verb == Verb::send;
        if (step.peer >= team_.size || step.peer == team_.rank) return "has a peer that is none";
        if ((sends ? step.dst : step.src) != Slot{} || step.sources != 1)
            return "has an operand too many";
        const Slot slot = sends ? step.src : step.dst;
        if (!sends && slot.is(SlotKind::input)) return "writes an input";
        if (!s_.is_placed) return nullptr;
        if (!slot.is(SlotKind::wire)) return "moves what is not encoded";
        if (!sends && slot.index < s_.outbox) return "receives into the outbox";
        return nullptr;
    }

    const char *fault_of_computing(const Step &step) {
        if (step.peer != 0 && !step.has(Step::common)) return "names a peer without a message";
        if (step.sources == 0 || (step.sources > 1 && step.verb != Verb::reduce))
            return "has a wrong number of sources";
        if (step.dst.is(SlotKind::input)) return "writes an input";
        if (accumulates(step.verb) && !step.dst.is(SlotKind::accumulator))
            return "adds to something other than an accumulator";
        const bool decodes = step.verb == Verb::decode || step.verb == Verb::decode_add;
        const bool encodes = step.verb == Verb::encode;
        if (!s_.is_placed && (decodes || encodes)) return "needs a placed schedule";
        if (step.dst.is(SlotKind::wire) != encodes) return "writes the wrong kind of slot";
        if (s_.is_placed && step.src.is(SlotKind::wire) != decodes)
            return "reads the wrong kind of slot";
        if (encodes) return fault_of_encoding(step);
        if (step.ordinal == 0 || step.has(Step::common)) return nullptr;
        return "has an ordinal, and nothing that it counts";
    }

    const char *fault_of_encoding(const Step &step) {
        if (step.dst.index >= s_.outbox) return "encodes outside the outbox";
        const uint32_t ordinals = step.has(Step::common) ? Step::common_ordinals : encodes_;
        if (step.ordinal >= ordinals) return "has an ordinal beyond the number of encodes";
        if (has_ordinal_[step.ordinal]) return "shares its noise with another encode";
        has_ordinal_[step.ordinal] = true;
        return nullptr;
    }

    const char *fault_of_flags(size_t number) const {
        const Step &step = s_.steps[number];
        const bool can_finish = step.verb == Verb::copy || step.verb == Verb::encode ||
                                (step.verb == Verb::send && !s_.is_placed);
        if (step.has(Step::finishes) && !(can_finish && has_complete_sums()))
            return "finishes no sum";
        const bool adds_input =
            step.verb == Verb::reduce && step.src.is(SlotKind::input) && !s_.is_placed;
        if (step.has(Step::as_encoded) && !adds_input) return "has no input to add as encoded";
        if (step.has(Step::stays) && step.verb != Verb::encode) return "encodes nothing to stay";
        if (step.has(Step::common)) {
            const bool makes_sum = step.verb == Verb::reduce && !s_.is_placed;
            if (!makes_sum && step.verb != Verb::encode) return "makes no sum that is common";
            if (step.peer >= team_.size) return "takes the noise of a rank that does not exist";
        }
        const bool is_plain = step.verb == Verb::copy || step.verb == Verb::reduce;
        if (step.has(Step::inner) && is_plain) return "names a tier without a message";
        if (!step.has(Step::joins_next)) return nullptr;
        if (number + 1 == s_.steps.size()) return "joins a step that does not exist";
        const Step &next = s_.steps[number + 1];
        const bool fits = computes(step.verb) && computes(next.verb) && next.chunk == step.chunk;
        return fits ? nullptr : "joins what cannot run tile by tile with it";
    }

    bool has_complete_sums() const {
        return (reduces(collective_) && !is_prefix(collective_)) ||
               collective_ == Collective::barrier;
    }

    const Schedule &s_;
    const Collective collective_;
    const Team &team_;
    uint32_t encodes_ = 0;
    std::vector<bool> has_ordinal_;
};

} // namespace

Done check_structure(const Schedule &schedule, Collective collective, const Team &team) {
    return Structure(schedule, collective, team).run();
}

Done check_frame(const Schedule &s, const Schedule &first, const Team &team,
                 bool has_chunk_per_rank) {
    const char *reason = nullptr;
    if (s.chunks != first.chunks)
        reason = "has another number of chunks than rank 0";
    else if (s.chunks == 0)
        reason = "has no chunk";
    else if (has_chunk_per_rank && s.chunks != team.size)
        reason = "needs a chunk for each rank";
    else if (s.outbox != first.outbox)
        reason = "has another outbox than rank 0";
    else if (s.is_placed != first.is_placed)
        reason = "differs from rank 0 in being placed";
    else if (s.is_placed && s.wires < s.outbox)
        reason = "has fewer wires than its outbox";
    if (!reason) return {};
    return invalid_argument("rank %u: the schedule %s", team.rank, reason).at_rank(team.rank);
}

// ---- Races

namespace {

class Races {
public:
    Races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank)
        : s_(schedule), deps_(dependencies), rank_(rank), places_(size_t{2} * s_.chunks + s_.wires),
          seen_(s_.steps.size()) {}

    Done run() {
        if (deps_.steps() != s_.steps.size())
            return invalid_argument("rank %u: dependencies of %zu steps for %zu", rank_,
                                    deps_.steps(), s_.steps.size());
        for (uint32_t i = 0; i < s_.steps.size(); i++) {
            const Step &step = s_.steps[i];
            for (const uint32_t earlier : deps_.of(i))
                if (earlier >= i) return wrong_step(rank_, i, step, "waits for a later step");
            const uint32_t against = unordered(i);
            if (against == no_index) continue;
            char reason[64];
            std::snprintf(reason, sizeof reason, "races with step %u", against);
            return wrong_step(rank_, i, step, reason);
        }
        return {};
    }

private:
    // The history of one slot. Orders that follow from others need no check: it is enough that a
    // read comes after the last write, and that a write comes after all reads since the last write,
    // or after the last write if there are none.
    struct SlotChunk {
        uint32_t writer = no_index;
        uint32_t readers = no_index; // since then: head of a list in reads_
    };
    struct ChunkRead {
        uint32_t step;
        uint32_t next;
    };

    SlotChunk &place(Slot slot) {
        if (slot.is(SlotKind::wire)) return places_[size_t{2} * s_.chunks + slot.index];
        if (slot.is(SlotKind::accumulator)) return places_[s_.chunks + slot.index];
        return places_[slot.index]; // one slot in an in-place call
    }

    // Returns the first earlier step that conflicts with step `number` and may run at the same
    // time.
    uint32_t unordered(uint32_t number) {
        const Step &step = s_.steps[number];
        for (uint32_t i = 0; step.verb != Verb::recv && i < step.sources; i++) {
            SlotChunk &read = place(step.src.after(i));
            if (read.writer != no_index && !leads(read.writer, number)) return read.writer;
            reads_.push_back({number, read.readers});
            read.readers = static_cast<uint32_t>(reads_.size() - 1);
        }
        if (step.verb == Verb::send) return no_index;
        SlotChunk &written = place(step.dst);
        if (written.writer != no_index && written.readers == no_index &&
            !leads(written.writer, number))
            return written.writer;
        for (uint32_t i = written.readers; i != no_index; i = reads_[i].next)
            if (reads_[i].step != number && !leads(reads_[i].step, number)) return reads_[i].step;
        written = {.writer = number};
        return no_index;
    }

    bool leads(uint32_t from, uint32_t to) {
        const auto waits = deps_.of(to);
        return std::binary_search(waits.begin(), waits.end(), from) || reaches(from, to);
    }

    // Searches backwards from `to`, never further than `from`.
    bool reaches(uint32_t from, uint32_t to) {
        stamp_++;
        std::vector<uint32_t> open{to};
        while (!open.empty()) {
            const uint32_t at = open.back();
            open.pop_back();
            for (const uint32_t earlier : deps_.of(at)) {
                if (earlier == from) return true;
                if (earlier < from || seen_[earlier] == stamp_) continue;
                seen_[earlier] = stamp_;
                open.push_back(earlier);
            }
        }
        return false;
    }

    const Schedule &s_;
    const Dependencies &deps_;
    const uint32_t rank_;
    std::vector<SlotChunk> places_;
    std::vector<ChunkRead> reads_;
    std::vector<uint32_t> seen_; // by step: number of the last search that visited it
    uint32_t stamp_ = 0;
};

} // namespace

Done check_races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank) {
    return Races(schedule, dependencies, rank).run();
}

// ---- What slots hold

Expression Expressions::leaf(uint32_t place, uint32_t giver) {
    return intern({.kind = Node::Kind::leaf, .begin = place, .end = place + 1, .a = giver});
}

uint32_t Expressions::giver_of(Expression value) const {
    while (nodes_[value].kind != Node::Kind::leaf) value = nodes_[value].a;
    return nodes_[value].a;
}

Expression Expressions::encode(Expression value, uint32_t place, uint32_t which, bool is_inner) {
    Node node = nodes_[value];
    node.kind = Node::Kind::encode;
    node.a = value;
    node.b = (place << 1 | (is_inner ? 1U : 0U)) << which_bits | which;
    (is_inner ? node.inner_noise : node.noise) += NoiseMoments::of(node.end - node.begin);
    node.has_final = node.has_final || is_complete(value);
    return intern(node);
}

Expression Expressions::add(Expression sum, Expression term, const SumOrder &order) {
    if (nodes_[sum].end - nodes_[sum].begin > 1 && nodes_[term].begin < nodes_[sum].begin)
        std::swap(sum, term);
    const Node &left = nodes_[sum], &right = nodes_[term];
    const bool follows = left.end == right.begin && left.begin == order.sum_begin(right.begin) &&
                         right.end == order.operand_end(right.begin);
    if (!follows || left.is_finished || right.is_finished) return none;
    return intern_sum(sum, term);
}

Expression Expressions::add_next(Expression sum, Expression term) {
    if (nodes_[sum].end - nodes_[sum].begin > 1 && nodes_[term].begin < nodes_[sum].begin)
        std::swap(sum, term);
    return nodes_[sum].end == nodes_[term].begin ? intern_sum(sum, term) : none;
}

Expression Expressions::intern_sum(Expression sum, Expression term) {
    const Node &left = nodes_[sum], &right = nodes_[term];
    return intern({.kind = Node::Kind::add,
                   .begin = left.begin,
                   .end = right.end,
                   .a = sum,
                   .b = term,
                   .noise = left.noise + right.noise,
                   .inner_noise = left.inner_noise + right.inner_noise});
}

Expression Expressions::finish(Expression value) {
    Node node = nodes_[value];
    if (node.is_finished || !is_complete(value)) return none;
    node.kind = Node::Kind::finish;
    node.is_finished = true;
    node.a = value;
    node.b = 0;
    return intern(node);
}

std::string Expressions::describe(Expression e) const {
    const Node &node = nodes_[e];
    std::string text = "contributions ";
    text.append(std::to_string(node.begin)).append(" to ").append(std::to_string(node.end - 1));
    text.append(" of ").append(std::to_string(complete_));
    return text;
}

Expression Expressions::intern(const Node &node) {
    const size_t mask = table_.size() - 1;
    size_t at = hash(node) & mask;
    for (; table_[at] != none; at = (at + 1) & mask)
        if (nodes_[table_[at]].is_same(node)) return table_[at];
    const auto made = static_cast<Expression>(nodes_.size());
    nodes_.push_back(node);
    table_[at] = made;
    if (2 * nodes_.size() > table_.size()) grow();
    return made;
}

void Expressions::grow() {
    table_.assign(2 * table_.size(), none);
    const size_t mask = table_.size() - 1;
    for (Expression e = 0; e < nodes_.size(); e++) {
        size_t at = hash(nodes_[e]) & mask;
        while (table_[at] != none) at = (at + 1) & mask;
        table_[at] = e;
    }
}

// Multiplies by odd constants with well mixed bits, as in MurmurHash3's finalizer.
uint64_t Expressions::hash(const Node &node) {
    uint64_t h = (uint64_t{node.a} << 32 | node.b) ^ (uint64_t{node.begin} << 3) ^
                 static_cast<uint64_t>(node.kind);
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCDULL;
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53ULL;
    return h ^ h >> 33;
}

} // namespace qccl
