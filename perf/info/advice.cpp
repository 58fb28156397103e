// Implements advice.hpp: executes the schedules of all ranks chunk by chunk, with queues for the
// messages, tries each codec by such a rehearsal and a plan, and selects the codec for an error
// budget.
#include "perf/info/advice.hpp"

#include "codec/chunk.hpp"
#include "codec/error_model.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/input_data.hpp"
#include "perf/run/result_check.hpp"
#include "schedule/lower.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <utility>

namespace qccl::perf {

// ---- Rehearsal

namespace {

using Bytes = std::vector<std::byte>;

// The schedules of all ranks, with the steps of each rank ordered by chunk. Chunks are independent
// of each other.
class Script {
public:
    static Result<Script> of(const Rehearsal &rehearsal) {
        Script script;
        for (uint32_t rank = 0; rank < rehearsal.ranks; rank++) {
            const Team team{
                .size = rehearsal.ranks, .rank = rank, .root = 0, .places = rehearsal.places};
            QCCL_TRY(const Schedule author,
                     emit(rehearsal.algorithm, Collective::all_reduce, team));
            QCCL_TRY(Schedule placed, place_codec(author));
            std::stable_sort(placed.steps.begin(), placed.steps.end(),
                             [](const Step &a, const Step &b) { return a.chunk < b.chunk; });
            script.schedules_.push_back(std::move(placed));
        }
        return script;
    }

    uint32_t chunks() const { return schedules_.front().chunks; }
    std::span<const Step> steps(uint32_t rank, uint32_t chunk) const {
        const auto &all = schedules_[rank].steps;
        const auto first = std::ranges::lower_bound(all, chunk, {}, &Step::chunk),
                   last = std::ranges::upper_bound(all, chunk, {}, &Step::chunk);
        return {first, last};
    }

private:
    std::vector<Schedule> schedules_;
};

// Executes the steps of one chunk on all ranks.
class ChunkRun {
public:
    ChunkRun(const Rehearsal &rehearsal, const Source &inputs, const Script &script, uint32_t chunk,
             const ElementRange &range)
        : rehearsal_(rehearsal), inputs_(inputs), script_(script), chunk_(chunk), range_(range),
          layout_(payload_layout(rehearsal.codec, rehearsal.type, range.count)),
          inner_layout_(payload_layout(rehearsal.inner_codec, rehearsal.type, range.count)),
          memory_(rehearsal.ranks) {}

    // Returns the result of rank 0.
    Result<Bytes> run() {
        std::vector<size_t> done(rehearsal_.ranks);
        for (bool moves = true; moves;) {
            moves = false;
            for (uint32_t rank = 0; rank < rehearsal_.ranks; rank++) {
                const auto steps = script_.steps(rank, chunk_);
                for (; done[rank] < steps.size() && has_come(rank, steps[done[rank]]); moves = true)
                    execute(rank, steps[done[rank]++]);
            }
        }
        for (uint32_t rank = 0; rank < rehearsal_.ranks; rank++)
            if (done[rank] != script_.steps(rank, chunk_).size())
                return Error::make(Code::internal_error, "rank %u waits for ever", rank);
        return at(0, output(chunk_));
    }

private:
    bool has_come(uint32_t rank, const Step &step) const {
        const auto found = messages_.find({step.peer, rank});
        return step.verb != Verb::recv || (found != messages_.end() && !found->second.empty());
    }

    DataType accumulator() const { return accumulator_of(rehearsal_.type); }
    DataType type_in(Slot slot) const {
        return slot.is(SlotKind::accumulator) ? accumulator() : rehearsal_.type;
    }

    Bytes &at(uint32_t rank, Slot slot) { return memory_[rank][{slot.what(), +slot.index}]; }
    Bytes &made(uint32_t rank, Slot slot) {
        Bytes &bytes = at(rank, slot);
        bytes.resize(range_.count * type_bytes(type_in(slot)));
        return bytes;
    }
    const Bytes &read(uint32_t rank, Slot slot) {
        if (!slot.is(SlotKind::input) || !at(rank, slot).empty()) return at(rank, slot);
        Bytes &bytes = made(rank, slot);
        inputs_.read(rank, rehearsal_.type, range_.index, range_.count, bytes.data());
        return bytes;
    }

    const Codec &codec_of(const Step &step) const {
        return step.has(Step::inner) ? rehearsal_.inner_codec : rehearsal_.codec;
    }
    const PayloadLayout &layout_of(const Step &step) const {
        return step.has(Step::inner) ? inner_layout_ : layout_;
    }
    ChunkRange whole(const Step &step) const {
        return {&codec_of(step), &layout_of(step), rehearsal_.type, range_.count, 0, range_.count};
    }

    // Behind an encoded payload lies its noise, which in a message the header states.
    ChunkRange stated(const Step &step, const Bytes &bytes) const {
        ChunkRange range = whole(step);
        if (range.codec->dithers())
            std::memcpy(&range.noise, bytes.data() + range.layout->bytes, sizeof range.noise);
        return range;
    }

    void execute(uint32_t rank, const Step &step) {
        switch (step.verb) {
        case Verb::send: messages_[{rank, step.peer}].push_back(read(rank, step.src)); return;
        case Verb::recv: {
            auto &queue = messages_[{step.peer, rank}];
            at(rank, step.dst) = std::move(queue.front());
            queue.pop_front();
            return;
        }
        case Verb::encode: encode(rank, step); return;
        case Verb::decode:
            kernels_.decode(stated(step, read(rank, step.src)), read(rank, step.src).data(),
                            type_in(step.dst), made(rank, step.dst).data(), false);
            return;
        case Verb::decode_add:
            for (uint32_t i = 0; i < step.sources; i++)
                kernels_.decode_add(stated(step, read(rank, step.src.after(i))), RedOp::sum,
                                    read(rank, step.src.after(i)).data(),
                                    at(rank, step.dst).data());
            return;
        case Verb::copy: {
            const Bytes &src = read(rank, step.src);
            kernels_.copy(type_in(step.dst), made(rank, step.dst).data(), type_in(step.src),
                          src.data(), range_.count, false);
            return;
        }
        case Verb::reduce:
            for (uint32_t i = 0; i < step.sources; i++)
                kernels_.reduce(RedOp::sum, accumulator(), at(rank, step.dst).data(),
                                type_in(step.src), read(rank, step.src.after(i)).data(),
                                range_.count);
            return;
        }
    }

    void encode(uint32_t rank, const Step &step) {
        constexpr uint64_t first_call = 1;
        const Bytes &values = read(rank, step.src);
        Bytes &payload = at(rank, step.dst);
        payload.assign(layout_of(step).bytes + sizeof(Noise), std::byte{});
        const Noise noise{.key =
                              noise_key(codec_of(step).seed, step.noise_rank(rank), step.ordinal),
                          .call = first_call,
                          .first_index = range_.index};
        kernels_.encode(whole(step), noise, type_in(step.src), values.data(), payload.data());
        std::memcpy(payload.data() + layout_of(step).bytes, &noise, sizeof noise);
    }

    const Kernels &kernels_ = best_kernels();
    const Rehearsal &rehearsal_;
    const Source &inputs_;
    const Script &script_;
    const uint32_t chunk_;
    const ElementRange range_;
    const PayloadLayout layout_, inner_layout_;
    std::vector<std::map<std::pair<SlotKind, uint32_t>, Bytes>> memory_;  // by rank
    std::map<std::pair<uint32_t, uint32_t>, std::deque<Bytes>> messages_; // by sender and receiver
};

} // namespace

Result<std::vector<std::byte>> rehearse(const Rehearsal &rehearsal, const Source &inputs) {
    Bytes result(rehearsal.count * type_bytes(rehearsal.type));
    if (rehearsal.ranks == 1) {
        inputs.read(0, rehearsal.type, 0, rehearsal.count, result.data());
        return result;
    }
    QCCL_TRY(const Script script, Script::of(rehearsal));
    const Layout layout(Collective::all_reduce, rehearsal.count,
                        {.size = rehearsal.ranks, .places = rehearsal.places}, script.chunks(),
                        grain(rehearsal.codec, rehearsal.inner_codec));
    for (uint32_t chunk = 0; chunk < script.chunks(); chunk++) {
        const ElementRange range = layout.range(output(chunk), chunk);
        if (range.count == 0) continue;
        QCCL_TRY(const Bytes sum, ChunkRun(rehearsal, inputs, script, chunk, range).run());
        std::ranges::copy(sum, result.begin() + static_cast<std::ptrdiff_t>(
                                                    range.offset * type_bytes(rehearsal.type)));
    }
    return result;
}

Result<std::optional<double>> rehearsed_nmse(const Rehearsal &rehearsal, const Source &inputs) {
    QCCL_TRY(const Bytes sum, rehearse(rehearsal, inputs));
    constexpr size_t piece = 1 << 14;
    std::vector<double> exact(piece), magnitudes(piece), summed(piece);
    ExactResult result({.type = rehearsal.type, .ranks = rehearsal.ranks, .count = rehearsal.count},
                       inputs);
    double error = 0, power = 0;
    for (uint64_t first = 0; first < rehearsal.count; first += piece) {
        const size_t count = std::min<uint64_t>(piece, rehearsal.count - first);
        result.reals(0, first, count, exact.data(), magnitudes.data());
        load_reals(rehearsal.type, sum.data() + first * type_bytes(rehearsal.type), count,
                   summed.data());
        for (size_t i = 0; i < count; i++) {
            error += (summed[i] - exact[i]) * (summed[i] - exact[i]);
            power += exact[i] * exact[i];
        }
    }
    const double nmse = error / power;
    return std::isfinite(nmse) ? std::optional(nmse) : std::nullopt;
}

// ---- Advice

Result<std::optional<double>> ErrorMeter::nmse(const Plan &plan) {
    std::string way;
    for (const std::string &word : {spec(plan.algorithm), spec(plan.codec), spec(plan.inner_codec)})
        way.append(word).append(" ");
    const auto found = known_.find(way);
    if (found != known_.end()) return found->second;
    const Rehearsal rehearsal{.algorithm = plan.algorithm,
                              .codec = plan.codec,
                              .inner_codec = plan.inner_codec,
                              .type = problem_.type,
                              .count = problem_.count,
                              .ranks = problem_.ranks,
                              .places = problem_.places};
    QCCL_TRY(const auto measured, rehearsed_nmse(rehearsal, data_));
    known_.emplace(std::move(way), measured);
    return measured;
}

static Result<CodecTrial> try_codec(const Codec &codec, ErrorMeter &meter,
                                    const PlannerInputs &inputs, StepCountCache &counts) {
    CodecTrial trial;
    trial.codec = codec;
    trial.bits = bits_per_value(codec, meter.problem().type);
    Codec anyway = codec;
    anyway.min_bytes = 0; // plan with the codec even if it does not pay
    QCCL_TRY(trial.plan, choose(with_codec(meter.problem(), anyway), inputs, {}, &counts));
    QCCL_TRY(const auto nmse, meter.nmse(trial.plan));
    if (!nmse)
        return invalid_argument(
            "the sum of the data is zero or not finite, and no part of it can be "
            "said to be lost");
    trial.nmse = *nmse;
    return trial;
}

Result<Advice> try_codecs(ErrorMeter &meter, const PlannerInputs &inputs) {
    Advice advice;
    const Problem problem = with_codec(meter.problem(), {});
    advice.has_known_link = problem.has_hosts() && inputs.speeds.is_remote_rate_known();
    StepCountCache counts;
    QCCL_TRY(advice.lossless, choose(problem, inputs, {}, &counts));
    for (const BoundedCodec &row : bounded_codecs()) {
        if (bits_per_value(row.codec, problem.type) >= bits_per_value({}, problem.type)) continue;
        QCCL_TRY(CodecTrial trial, try_codec(row.codec, meter, inputs, counts));
        advice.trials.push_back(std::move(trial));
    }
    return advice;
}

double gain(const Advice &advice, const CodecTrial &trial) {
    return advice.lossless.cost.time_ns / trial.plan.cost.time_ns;
}

BudgetAdvice advise(const Advice &advice, double nmse) {
    BudgetAdvice found{.nmse = nmse};
    double fastest = 0;
    for (const CodecTrial &trial : advice.trials) {
        if (trial.nmse <= nmse && (fastest == 0 || trial.plan.cost.time_ns < fastest))
            fastest = trial.plan.cost.time_ns;
    }
    for (const CodecTrial &trial : advice.trials) {
        const bool is_candidate =
            fastest == 0 || (trial.nmse <= nmse && trial.plan.cost.time_ns <= fastest * equal_time);
        if (is_candidate && (!found.trial || trial.nmse < found.trial->nmse)) found.trial = &trial;
    }
    if (fastest == 0) return found;
    const bool pays = gain(advice, *found.trial) >= least_gain;
    found.outcome = !advice.has_known_link ? BudgetAdvice::Outcome::no_link
                    : pays                 ? BudgetAdvice::Outcome::codec
                                           : BudgetAdvice::Outcome::no_gain;
    return found;
}

std::string sentence_of(const Advice &advice, const BudgetAdvice &chosen) {
    const CodecTrial &trial = *chosen.trial;
    const std::string codec = spec(trial.codec), times = time_text(trial.plan.cost.time_ns) +
                                                         " instead of " +
                                                         time_text(advice.lossless.cost.time_ns);
    char text[512];
    switch (chosen.outcome) {
    case BudgetAdvice::Outcome::codec:
        std::snprintf(text, sizeof text,
                      "For an NMSE of at most %g use %s: the sum takes %s, and its NMSE is %.2e.",
                      chosen.nmse, codec.c_str(), times.c_str(), trial.nmse);
        break;
    case BudgetAdvice::Outcome::no_link:
        return "Leave QCCL_CODEC alone: all ranks are on one host, where memory is the bound and a "
               "codec gains little. --topology names a network.";
    case BudgetAdvice::Outcome::no_gain:
        std::snprintf(text, sizeof text,
                      "For an NMSE of at most %g leave QCCL_CODEC alone: no codec that keeps it "
                      "makes the sum %g times as fast on this network; with %s it takes %s.",
                      chosen.nmse, least_gain, codec.c_str(), times.c_str());
        break;
    case BudgetAdvice::Outcome::missed:
        std::snprintf(text, sizeof text,
                      "Leave QCCL_CODEC alone: no codec keeps an NMSE of %g on these data; %s "
                      "comes nearest, with %.2e.",
                      chosen.nmse, codec.c_str(), trial.nmse);
        break;
    }
    return text;
}

} // namespace qccl::perf
