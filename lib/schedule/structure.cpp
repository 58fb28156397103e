// Checks each step's operands, peer, ordinal and flags.
#include "schedule/structure.hpp"

#include "schedule/layout.hpp"
#include "schedule/text.hpp"

#include <algorithm>

namespace qccl {

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
        const bool stores = step.verb == Verb::copy || step.verb == Verb::encode;
        if (step.has(Step::finishes) && !(stores && reduces_or_waits())) return "finishes no sum";
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

    bool reduces_or_waits() const {
        return reduces(collective_) || collective_ == Collective::barrier;
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
    return Error::make(Code::invalid_argument, "rank %u: the schedule %s", team.rank, reason)
        .at_rank(team.rank);
}

} // namespace qccl
