// Gives tile buffers to accumulators that live within one run, and shares segment buffers among the
// others in the schedule's order. Searches one rank's runs for encodes that only copy, and decides
// which of them peers can read in place without a deadlock. Translates each step by its verb and by
// where its operands lie.
#include "engine/compile/translate.hpp"

#include <algorithm>

namespace qccl {

// ---- Where accumulators lie

namespace {

bool is_sum(Slot slot) { return slot.is(SlotKind::accumulator); }

// Calls visit(chunk) for each accumulator that the step reads or writes.
template <class Visitor> void each_sum(const Step &step, Visitor visit) {
    if (is_sum(step.dst)) visit(step.dst.index);
    if (!is_sum(step.src)) return;
    for (uint32_t i = 0; i < step.sources; i++) visit(step.src.index + i);
}

class Finder {
public:
    Finder(const Fused &fused, std::span<const StepRun> runs, bool joins)
        : fused_(fused), runs_(runs), joins_(joins), users_(fused.schedule.chunks) {
        accumulators_.of.resize(fused.schedule.chunks);
    }

    AccumulatorPlacement find() && {
        for (uint32_t run = 0; run < runs_.size(); run++)
            for (const Step &step : steps(run))
                each_sum(step, [&](uint32_t chunk) {
                    if (users_[chunk].empty() || users_[chunk].back() != run)
                        users_[chunk].push_back(run);
                });
        for (uint32_t run = 0; run < runs_.size(); run++) {
            uint32_t tiles = 0;
            for (const Step &step : steps(run))
                each_sum(step, [&](uint32_t chunk) {
                    if (accumulators_.of[chunk].is(OperandRef::Kind::none))
                        settle(run, chunk, tiles);
                });
            accumulators_.tile_buffers = std::max(accumulators_.tile_buffers, tiles);
        }
        return std::move(accumulators_);
    }

private:
    std::span<const Step> steps(uint32_t run) const {
        return std::span(fused_.schedule.steps)
            .subspan(runs_[run].first, runs_[run].last - runs_[run].first);
    }

    void settle(uint32_t run, uint32_t chunk, uint32_t &tiles) {
        OperandRef &home = accumulators_.of[chunk];
        if (!joins_ || !fused_.is_local[chunk]) {
            home = {OperandRef::Kind::segment, take_buffer(run, chunk)};
            return;
        }
        home = {OperandRef::Kind::tile, tiles++};
    }

    // Reuses a segment buffer whose last owner is done before `run` in the schedule's order. Tasks
    // run in any order that their dependencies allow, so the runs of that owner become dependencies
    // of the new owner's.
    uint32_t take_buffer(uint32_t run, uint32_t chunk) {
        for (uint32_t i = 0; i < owners_.size(); i++) {
            const std::vector<uint32_t> &past = users_[owners_[i]];
            if (past.back() >= run) continue;
            for (const uint32_t earlier : past)
                for (const uint32_t later : users_[chunk])
                    accumulators_.orders.push_back({earlier, later});
            owners_[i] = chunk;
            return i;
        }
        owners_.push_back(chunk);
        return accumulators_.segment_buffers++;
    }

    const Fused &fused_;
    const std::span<const StepRun> runs_;
    const bool joins_;
    std::vector<std::vector<uint32_t>> users_; // by accumulator: the runs that use it, ascending
    std::vector<uint32_t> owners_;             // by buffer: the accumulator that has it
    AccumulatorPlacement accumulators_;
};

} // namespace

AccumulatorPlacement place_accumulators(const Fused &fused, std::span<const StepRun> runs,
                                        bool joins) {
    return Finder(fused, runs, joins).find();
}

// ---- Zero copy

namespace {

bool writes_output(const Step &step, uint32_t chunk) {
    return step.verb != Verb::send && step.dst == output(chunk);
}

bool reads(const Step &step, Slot slot) {
    if (step.verb == Verb::recv || step.src.what() != slot.what()) return false;
    return slot.index >= step.src.index && slot.index - step.src.index < step.sources;
}

class LendAnalysis {
public:
    LendAnalysis(const Schedule &schedule, std::span<const StepRun> runs)
        : steps_(schedule.steps), runs_(runs) {}

    ZeroCopySource find(const StepRun &run, uint32_t encode) const {
        const Step &step = steps_[encode];
        const bool is_input = step.src.is(SlotKind::input);
        return {.input = is_input ? std::optional<uint32_t>(step.src.index) : std::nullopt,
                .also_in_place = is_input && may_be_overwritten(run, step),
                .output = find_output(run, step.dst),
                .readers = count_readers(run, step.dst)};
    }

private:
    // In an in-place call, a run that writes the output waits until peers have read the input. This
    // cannot deadlock if no run from there on needs what this rank gave: then this rank's part of
    // what the run writes has come back through a reader. If every rank sums what all ranks have
    // sent (oneshot), each rank would wait for the runs of the others.
    bool may_be_overwritten(const StepRun &own, const Step &encode) const {
        bool is_overwritten = false;
        for (const StepRun &run : runs_) {
            bool is_needed = false;
            for (const Step &step : steps_.subspan(run.first, run.last - run.first)) {
                // The same run decodes the encoded bytes to where they already lie, so this write
                // changes nothing.
                const bool is_same = run.first == own.first && step.src == encode.dst;
                is_overwritten |= writes_output(step, encode.src.index) && !is_same;
                is_needed |= reads(step, encode.src) || reads(step, encode.dst);
            }
            if (is_overwritten && is_needed) return false;
        }
        return true;
    }

    std::optional<uint32_t> find_output(const StepRun &run, Slot wire) const {
        for (uint32_t i = run.first; i < run.last; i++) {
            const Step &step = steps_[i];
            if (!step.dst.is(SlotKind::output) || step.verb != Verb::decode || step.src != wire)
                continue;
            const auto writers =
                std::count_if(steps_.begin(), steps_.end(), [&](const Step &other) {
                    return writes_output(other, step.dst.index);
                });
            if (writers == 1) return step.dst.index;
        }
        return std::nullopt;
    }

    // Counts the runs until another value is encoded into the slot.
    uint32_t count_readers(const StepRun &own, Slot wire) const {
        uint32_t readers = 0;
        for (const StepRun &run : runs_) {
            if (run.first < own.first) continue;
            const auto steps = steps_.subspan(run.first, run.last - run.first);
            const auto encodes = [&](const Step &step) {
                return step.verb == Verb::encode && step.dst == wire;
            };
            if (run.first != own.first && std::any_of(steps.begin(), steps.end(), encodes)) break;
            readers += std::any_of(steps.begin(), steps.end(),
                                   [&](const Step &step) { return reads(step, wire); });
        }
        return readers;
    }

    const std::span<const Step> steps_;
    const std::span<const StepRun> runs_;
};

} // namespace

std::vector<ZeroCopySource> find_zero_copy_sources(const Schedule &schedule,
                                                   std::span<const StepRun> runs) {
    const LendAnalysis analysis(schedule, runs);
    std::vector<ZeroCopySource> found;
    for (const StepRun &run : runs)
        for (uint32_t i = run.first; i < run.last; i++) {
            const Step &step = schedule.steps[i];
            if (step.verb != Verb::encode) continue;
            if (step.ordinal >= found.size()) found.resize(size_t{step.ordinal} + 1);
            found[step.ordinal] = analysis.find(run, i);
        }
    return found;
}

// ---- Steps to operations

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
        if (step.has(Step::finishes) && translation_.divides && !translation_.sums_exactly)
            QCCL_TRY(divide(step));
        switch (step.verb) {
        case Verb::copy: push(Op::What::copy, step, step.src); break;
        case Verb::reduce:
            for (uint32_t i = 0; i < step.sources; i++)
                push(Op::What::reduce, step, Slot(step.src.what(), step.src.index + i));
            break;
        case Verb::encode:
            encode(number);
            if (keeps_error(step)) QCCL_TRY(keep_error(step));
            break;
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
        if (slot.is(SlotKind::input)) return translation_.input_type();
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
        Op next = op(what, step, step.dst, src);
        if (translation_.sums_exactly) sum_exactly(next, step, src);
        if (src.is(SlotKind::input) && translation_.product) multiply(next);
        ops_.push_back(next);
    }

    // What reads such a sum rounds it, and divides it if it is complete.
    void sum_exactly(Op &next, const Step &step, Slot src) const {
        const bool adds = next.what == Op::What::reduce;
        if (is_sum(step.dst))
            next.what = adds ? Op::What::add_exact : Op::What::begin_exact;
        else if (is_sum(src))
            next.what = Op::What::round_exact;
        next.is_divided =
            next.what == Op::What::round_exact && translation_.divides && step.has(Step::finishes);
    }

    // Lets the operation read products of its input, which lie in a tile.
    void multiply(Op &reader) {
        Op product = reader;
        product.what = Op::What::multiply;
        product.may_stream = false;
        product.dst = *translation_.product;
        product.dst_type = product.src_type;
        ops_.push_back(product);
        reader.src = product.dst;
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

    // Whether the encode's error belongs to this rank, and the caller wants it. Of the ranks that
    // make the same bytes of the same sum, the one whose noise they use has the error.
    bool keeps_error(const Step &step) const {
        if (translation_.feedback == Feedback::none || is_plain(step)) return false;
        if (step.noise_rank(translation_.rank) != translation_.rank) return false;
        return translation_.feedback == Feedback::all || !step.has(Step::finishes);
    }

    Done keep_error(const Step &step) {
        if (type(step.src) != accumulator_of(translation_.type))
            return Error::make(Code::internal_error,
                               "chunk %u is encoded from values that were rounded", step.chunk);
        Op decoded = op(Op::What::decode, step, {}, step.dst);
        decoded.dst = {.kind = OperandRef::Kind::decoded};
        decoded.dst_type = accumulator_of(translation_.type);
        ops_.push_back(decoded);
        Op kept = op(Op::What::keep_error, step, {}, step.src);
        kept.is_divided = step.has(Step::finishes) && translation_.divides;
        kept.dst = {.kind = OperandRef::Kind::residual};
        kept.dst_type = decoded.dst_type;
        ops_.push_back(kept);
        return {};
    }

    void decode(const Step &step) {
        push(is_plain(step) ? Op::What::copy : Op::What::decode, step, at_hand(step));
    }

    // What the same run has just stored without loss is better read from its source, because the
    // payload was written past the cache.
    Slot at_hand(const Step &step) const {
        const bool is_stored = is_plain(step) && encoded_ && encoded_->dst == step.src;
        if (!is_stored || type(encoded_->src) != translation_.type) return step.src;
        const bool is_rounded = translation_.sums_exactly && is_sum(encoded_->src);
        return is_rounded ? step.src : encoded_->src;
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
