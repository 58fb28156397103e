// Looks up first what later steps do with each value, then rewrites the steps one by one.
#include "schedule/lower.hpp"

#include <deque>
#include <limits>
#include <optional>

namespace qccl {

namespace {

using Value = uint32_t;
constexpr Value no_value = ~Value{0};

// Tracks which value each slot holds. A copy shares the value of its source; every other step that
// writes makes a new value.
class Values {
public:
    explicit Values(const Schedule &s)
        : inputs_(s.chunks, no_value), outputs_(s.chunks, no_value), sums_(s.chunks, no_value),
          wires_(s.wires, no_value) {}

    bool exists(Slot slot) { return cells(slot) && slot.index < cells(slot)->size(); }
    // The caller's input is there from the start. Everything else has to be written first.
    Value of(Slot slot) {
        Value &held = at(slot);
        if (held == no_value && slot.is(SlotKind::input)) held = count_++;
        return held;
    }
    void write(const Step &step) {
        if (step.verb == Verb::send) return;
        if (step.verb == Verb::copy && !step.has(Step::finishes))
            at(step.dst) = of(step.src);
        else
            at(step.dst) = count_++;
    }
    Value count() const { return count_; }

private:
    std::vector<Value> *cells(Slot slot) {
        switch (slot.what()) {
        case SlotKind::input: return &inputs_;
        case SlotKind::output: return &outputs_;
        case SlotKind::accumulator: return &sums_;
        case SlotKind::wire: return &wires_;
        case SlotKind::none: break;
        }
        return nullptr;
    }
    Value &at(Slot slot) { return (*cells(slot))[slot.index]; }

    std::vector<Value> inputs_, outputs_, sums_, wires_;
    Value count_ = 0;
};

Error refuse(size_t step, const char *reason) {
    return invalid_argument("place_codec: step %zu %s", step, reason);
}

Done check_slots(Values &values, const Step &step, size_t number) {
    if (step.verb > Verb::copy) return refuse(number, "is not one that an author writes");
    if (step.verb != Verb::send) {
        if (!values.exists(step.dst)) return refuse(number, "writes a slot that does not exist");
        if (step.dst.is(SlotKind::input)) return refuse(number, "writes an input");
        if (step.verb == Verb::reduce && !step.dst.is(SlotKind::accumulator))
            return refuse(number, "reduces into something other than an accumulator");
        if (step.verb == Verb::copy && step.dst.is(SlotKind::wire))
            return refuse(number, "copies into a wire slot");
    }
    if (step.verb == Verb::recv) return {};
    const uint32_t sources = step.verb == Verb::reduce ? step.sources : 1;
    for (uint32_t i = 0; i < sources; i++) {
        const Slot src = step.src.after(i);
        if (!values.exists(src)) return refuse(number, "reads a slot that does not exist");
        if (values.of(src) == no_value) return refuse(number, "reads what was never written");
    }
    return {};
}

// What later steps do with a value, which decides where it is encoded and decoded.
struct ValueUse {
    bool is_sent = false;
    bool is_read = false;   // by a step of this rank
    uint32_t last_step = 0; // the last step that reads it
};

Result<std::vector<ValueUse>> find_uses(const Schedule &author) {
    std::vector<ValueUse> uses;
    Values values(author);
    const auto note = [&](Slot src, uint32_t number, bool sends) {
        const Value value = values.of(src);
        uses.resize(values.count());
        (sends ? uses[value].is_sent : uses[value].is_read) = true;
        uses[value].last_step = number;
    };
    for (uint32_t i = 0; i < author.steps.size(); i++) {
        const Step &step = author.steps[i];
        QCCL_TRY(check_slots(values, step, i));
        if (step.verb == Verb::reduce) {
            if (values.of(step.dst) != no_value) note(step.dst, i, false);
            for (uint32_t k = 0; k < step.sources; k++) note(step.src.after(k), i, false);
        } else if (step.verb != Verb::recv) {
            note(step.src, i, step.verb == Verb::send);
        }
        values.write(step);
    }
    uses.resize(values.count());
    return uses;
}

class Placer {
public:
    Placer(const Schedule &author, std::vector<ValueUse> uses, OwnerKeeps owner)
        : author_(author), owner_(owner), uses_(std::move(uses)), values_(author),
          wire_of_(uses_.size()), tier_of_(uses_.size()), is_exact_(author.chunks) {
        placed_.chunks = author.chunks;
        placed_.outbox = author.outbox;
        placed_.wires = author.outbox + author.wires;
        placed_.is_placed = true;
        placed_.steps.reserve(2 * author.steps.size());
        for (uint32_t i = 0; i < author.outbox; i++) free_.push_back(wire(i));
    }

    Result<Schedule> run() {
        for (number_ = 0; number_ < author_.steps.size(); number_++) {
            const Step &step = author_.steps[number_];
            // A received message is passed on before it is decoded, because other ranks wait for
            // it.
            if (step.verb != Verb::send) settle();
            switch (step.verb) {
            case Verb::send: QCCL_TRY(send(step)); break;
            case Verb::recv: recv(step); break;
            case Verb::reduce: QCCL_TRY(reduce(step)); break;
            default: QCCL_TRY(copy(step));
            }
        }
        settle();
        return std::move(placed_);
    }

private:
    bool is_encoded(Value value) const { return !wire_of_[value].is(SlotKind::none); }

    Step &emit(Verb verb, Slot dst, Slot src) {
        const Step &from = author_.steps[number_];
        placed_.steps.push_back({.verb = verb, .dst = dst, .src = src, .chunk = from.chunk});
        return placed_.steps.back();
    }

    void settle() {
        if (arrival_) placed_.steps.push_back(*arrival_);
        arrival_.reset();
    }

    // Gives back the slot of an own value after its last reader.
    void give_up(Value value) {
        if (uses_[value].last_step != number_ || !is_encoded(value)) return;
        if (wire_of_[value].index < author_.outbox) free_.push_back(wire_of_[value]);
    }

    // Emits a step that reads the encoded bytes of a value.
    void emit_decode(Verb verb, Slot dst, Value value) {
        emit(verb, dst, wire_of_[value]).flags = tier_of_[value];
    }

    Done encode(Value value, Slot src, uint8_t flags) {
        if (free_.empty())
            return refuse(number_, "needs a wire slot, and all of the outbox are in use");
        wire_of_[value] = free_.front();
        free_.pop_front();
        tier_of_[value] = flags & Step::inner;
        Step &step = emit(Verb::encode, wire_of_[value], src);
        step.flags = flags;
        step.ordinal = encodes_++;
        return {};
    }

    // Encodes at once, so that the sum itself need not be kept.
    Done encode_common(const Step &maker) {
        const Value value = values_.of(maker.dst);
        QCCL_TRY(encode(value, maker.dst, uses_[value].is_sent ? 0 : Step::stays));
        Step &step = placed_.steps.back();
        step.flags |= Step::common;
        step.peer = maker.peer;
        step.ordinal = maker.ordinal;
        return {};
    }

    Done send(const Step &step) {
        const Value value = values_.of(step.src);
        if (arrival_ && arrival_->dst != step.src) settle();
        const uint8_t tier = step.flags & Step::inner, finishes = step.flags & Step::finishes;
        if (finishes != 0) QCCL_TRY(check_finished(value));
        if (!is_encoded(value)) QCCL_TRY(encode(value, step.src, tier | finishes));
        if (tier_of_[value] != tier)
            return refuse(number_, "sends in one tier what was encoded in another");
        Step &sent = emit(Verb::send, {}, wire_of_[value]);
        sent.peer = step.peer;
        sent.flags = tier;
        give_up(value);
        return {};
    }

    // Only the encoded bytes hold what a send finishes, not its source.
    Done check_finished(Value value) const {
        if (is_encoded(value)) return refuse(number_, "finishes what has already travelled");
        if (uses_[value].is_read || uses_[value].last_step != number_)
            return refuse(number_, "finishes a sum that other steps read");
        return {};
    }

    void recv(const Step &step) {
        const bool names_wire = step.dst.is(SlotKind::wire);
        const Slot slot = wire(names_wire ? author_.outbox + step.dst.index : placed_.wires++);
        Step &received = emit(Verb::recv, slot, {});
        received.peer = step.peer;
        received.flags = step.flags & Step::inner;
        values_.write(step);
        const Value value = values_.of(step.dst);
        wire_of_[value] = slot;
        tier_of_[value] = step.flags & Step::inner;
        const bool is_sum = step.dst.is(SlotKind::accumulator);
        if (is_sum) is_exact_[step.dst.index] = false;
        if (step.dst.is(SlotKind::output) || (is_sum && uses_[value].is_read))
            arrival_ = Step{.verb = Verb::decode,
                            .flags = tier_of_[value],
                            .dst = step.dst,
                            .src = slot,
                            .chunk = step.chunk};
    }

    Done reduce(const Step &step) {
        const Value before = values_.of(step.dst);
        bool is_first = before == no_value;
        // This rank goes on with the values that it gave to its peers.
        if (!is_first && is_encoded(before) && is_exact_[step.dst.index])
            emit_decode(Verb::decode, step.dst, before);
        if (!is_first) give_up(before);
        for (uint32_t i = 0; i < step.sources; i++) {
            const Slot src = step.src.after(i);
            const Value value = values_.of(src);
            if (step.has(Step::as_encoded) && !is_encoded(value))
                QCCL_TRY(encode(value, src, uses_[value].is_sent ? 0 : Step::stays));
            if (is_encoded(value))
                emit_decode(is_first ? Verb::decode : Verb::decode_add, step.dst, value);
            else if (is_first)
                emit(Verb::copy, step.dst, src);
            else
                add(step.dst, src);
            give_up(value);
            is_first = false;
        }
        values_.write(step);
        is_exact_[step.dst.index] = true;
        return step.has(Step::common) ? encode_common(step) : Done();
    }

    // Consecutive sources of one reduce stay one step.
    void add(Slot dst, Slot src) {
        if (!placed_.steps.empty()) {
            Step &last = placed_.steps.back();
            const bool extends = last.verb == Verb::reduce && last.dst == dst &&
                                 last.src.after(last.sources) == src &&
                                 last.sources < std::numeric_limits<uint16_t>::max();
            if (extends) {
                last.sources++;
                return;
            }
        }
        emit(Verb::reduce, dst, src);
    }

    // Whether the step gives an owner its own values.
    bool keeps_exact(const Step &copy) const {
        return owner_ == OwnerKeeps::exact && copy.src.is(SlotKind::input) &&
               copy.dst.is(SlotKind::output);
    }

    Done copy(const Step &step) {
        const Value source = values_.of(step.src);
        const bool finishes = step.has(Step::finishes);
        if (finishes && is_encoded(source))
            return refuse(number_, "finishes what has already travelled");
        values_.write(step);
        const Value value = values_.of(step.dst);
        const uint8_t flags = step.flags & Step::finishes;
        if (!is_encoded(value) && uses_[value].is_sent) QCCL_TRY(encode(value, step.src, flags));
        if (is_encoded(value) && !keeps_exact(step))
            emit_decode(Verb::decode, step.dst, value);
        else
            emit(Verb::copy, step.dst, step.src).flags = flags;
        if (step.dst.is(SlotKind::accumulator)) is_exact_[step.dst.index] = !is_encoded(value);
        give_up(source);
        return {};
    }

    const Schedule &author_;
    const OwnerKeeps owner_;
    const std::vector<ValueUse> uses_;
    Values values_;
    std::vector<Slot> wire_of_;    // by value: where its encoded bytes are
    std::vector<uint8_t> tier_of_; // by encoded value: Step::inner or 0
    std::vector<bool> is_exact_;   // by chunk: its accumulator is more exact than its encoded bytes
    std::deque<Slot> free_;        // own wire slots; the one given back longest ago is first
    std::optional<Step> arrival_;  // decodes the message that came last
    Schedule placed_;
    uint32_t number_ = 0;
    uint32_t encodes_ = 0;
};

} // namespace

Result<Schedule> place_codec(const Schedule &author, OwnerKeeps owner) {
    if (author.is_placed) return invalid_argument("place_codec: the schedule is already placed");
    QCCL_TRY(auto uses, find_uses(author));
    return Placer(author, std::move(uses), owner).run();
}

} // namespace qccl
