// Translates one run at a time, and leaves out stores that no step needs.
#include "engine/translate.hpp"

namespace qccl {
namespace {

class Translator {
public:
    Translator(const Translation &translation, StepRun run, const std::vector<bool> &outputs_read,
               std::vector<Op> &ops)
        : translation_(translation), run_(run), outputs_read_(outputs_read), ops_(ops) {}

    Done translate() {
        for (uint32_t i = run_.first; i < run_.last; i++) QCCL_TRY(add(i));
        return {};
    }

private:
    Done add(uint32_t number) {
        const Step &step = translation_.schedule->steps[number];
        if (step.has(Step::finishes) && translation_.divides) QCCL_TRY(divide(step));
        switch (step.verb) {
        case Verb::copy: push(Op::What::copy, step, step.src); break;
        case Verb::reduce:
            for (uint32_t i = 0; i < step.sources; i++)
                push(Op::What::reduce, step, Slot(step.src.what(), step.src.index + i));
            break;
        case Verb::encode: encode(number); break;
        case Verb::decode: decode(step); break;
        case Verb::decode_add:
            push(is_plain(step) ? Op::What::reduce : Op::What::decode_add, step, at_hand(step));
            break;
        case Verb::send:
        case Verb::recv:
            return Error::make(Code::internal_error,
                               "a run of computing steps has a message in it");
        }
        return {};
    }

    // Returns true if the bytes that the step stores or reads are plain values.
    bool is_plain(const Step &step) const {
        return step.has(Step::inner) ? translation_.is_inner_lossless : translation_.is_lossless;
    }

    OperandRef place(Slot slot) const {
        switch (slot.what()) {
        case SlotKind::input: return {OperandRef::Kind::input, slot.index};
        case SlotKind::output: return {OperandRef::Kind::output, slot.index};
        case SlotKind::accumulator: return translation_.accumulators[slot.index];
        case SlotKind::wire: return {OperandRef::Kind::payload, slot.index};
        case SlotKind::none: break;
        }
        return {};
    }

    DataType type(Slot slot) const {
        return slot.is(SlotKind::accumulator) ? accumulator_of(translation_.type)
                                              : translation_.type;
    }

    Op op(Op::What what, const Step &step, Slot dst, Slot src) const {
        return {.what = what,
                .may_stream = dst.is(SlotKind::output) && !outputs_read_[dst.index],
                .is_inner = step.has(Step::inner),
                .dst_type = type(dst),
                .src_type = type(src),
                .dst = place(dst),
                .src = place(src),
                .chunk = step.chunk,
                .ordinal = step.ordinal,
                .noise_rank = step.noise_rank(translation_.rank)};
    }

    void push(Op::What what, const Step &step, Slot src) {
        ops_.push_back(op(what, step, step.dst, src));
    }

    Done divide(const Step &step) {
        if (!step.src.is(SlotKind::accumulator))
            return Error::make(Code::internal_error, "chunk %u is finished without a sum",
                               step.chunk);
        ops_.push_back(op(Op::What::divide, step, step.src, {}));
        return {};
    }

    void encode(uint32_t number) {
        const Step &step = translation_.schedule->steps[number];
        encoded_ = &step;
        if (is_for_next_alone(number)) return;
        ops_.push_back(op(Op::What::write_header, step, step.dst, {}));
        push(is_plain(step) ? Op::What::copy : Op::What::encode, step, step.src);
    }

    // Returns true if only the next step reads the encoded values. Plain values need not be stored
    // then.
    bool is_for_next_alone(uint32_t number) const {
        const Step &step = translation_.schedule->steps[number];
        if (!step.has(Step::stays) || number + 1 == run_.last) return false;
        const Step &next = translation_.schedule->steps[number + 1];
        return at_hand(next) == step.src && next.has(Step::releases);
    }

    void decode(const Step &step) {
        push(is_plain(step) ? Op::What::copy : Op::What::decode, step, at_hand(step));
    }

    // What the same run has just stored without loss is better read from its source, because the
    // payload was written past the cache.
    Slot at_hand(const Step &step) const {
        const bool is_at_hand = is_plain(step) && encoded_ && encoded_->dst == step.src &&
                                type(encoded_->src) == translation_.type;
        return is_at_hand ? encoded_->src : step.src;
    }

    const Translation &translation_;
    const StepRun run_;
    const std::vector<bool> &outputs_read_;
    std::vector<Op> &ops_;
    const Step *encoded_ = nullptr; // the run's latest encode
};

} // namespace

std::vector<bool> read_outputs(const Schedule &schedule) {
    std::vector<bool> is_read(schedule.chunks);
    for (const Step &step : schedule.steps) {
        if (step.src.is(SlotKind::output))
            for (uint32_t i = 0; i < step.sources; i++) is_read[step.src.index + i] = true;
        if (accumulates(step.verb) && step.dst.is(SlotKind::output)) is_read[step.dst.index] = true;
    }
    return is_read;
}

Done translate(const Translation &translation, StepRun run, const std::vector<bool> &outputs_read,
               std::vector<Op> &ops) {
    return Translator(translation, run, outputs_read, ops).translate();
}

} // namespace qccl
