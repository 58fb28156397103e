// Executes the schedules of all ranks chunk by chunk, with queues for the messages; of a sample,
// the chunks are the sample's parts of them.
#include "perf/info/rehearsal.hpp"

#include "codec/chunk.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/run/result_check.hpp"
#include "schedule/lower.hpp"
#include "schedule/shape.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>

namespace qccl::perf {

// ---- The chunks of a schedule

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

Layout layout_of(const Rehearsal &rehearsal, const Script &script) {
    return {Collective::all_reduce, rehearsal.count,
            Team{.size = rehearsal.ranks, .places = rehearsal.places}, script.chunks(),
            grain(rehearsal.codec, rehearsal.inner_codec)};
}

// Neighbouring values of the vector, each of which stands for `weight` values.
struct SampleRun {
    uint32_t chunk = 0;
    uint64_t first = 0, count = 0;
    double weight = 1;
};

// ---- One chunk

// Executes the steps of one chunk on all ranks, of the values of `runs`, which lie in the chunk.
class ChunkRun {
public:
    // `whole`: how many values the chunk has. `call`: the number of the communicator's call, which
    // decides what noise codecs draw.
    ChunkRun(const Rehearsal &rehearsal, const Source &inputs, const Script &script,
             std::span<const SampleRun> runs, uint64_t whole, uint64_t call = 1)
        : rehearsal_(rehearsal), inputs_(inputs), script_(script), runs_(runs),
          chunk_(runs.front().chunk), whole_(whole), call_(call), memory_(rehearsal.ranks) {
        for (const SampleRun &run : runs) count_ += run.count;
    }

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
        bytes.resize(count_ * type_bytes(type_in(slot)));
        return bytes;
    }
    const Bytes &read(uint32_t rank, Slot slot) {
        if (!slot.is(SlotKind::input) || !at(rank, slot).empty()) return at(rank, slot);
        Bytes &bytes = made(rank, slot);
        std::byte *dst = bytes.data();
        for (const SampleRun &run : runs_) {
            inputs_.read(rank, rehearsal_.type, run.first, run.count, dst);
            dst += run.count * type_bytes(rehearsal_.type);
        }
        return bytes;
    }

    // How a payload is encoded; the range that is its whole chunk points into this.
    struct Encoding {
        Codec codec;
        PayloadLayout layout;

        Encoding(const Codec &with, DataType type, uint64_t count)
            : codec(with), layout(payload_layout(codec, type, count)) {}
    };
    const Codec &codec_of(const Step &step) const {
        return step.has(Step::inner) ? rehearsal_.inner_codec : rehearsal_.codec;
    }
    Encoding encoding_of(const Step &step, uint32_t share) const {
        Codec codec = codec_of(step);
        codec.share = share;
        return {codec, rehearsal_.type, count_};
    }

    // What lies behind an encoded payload. In a message the header states the noise.
    struct Trailer {
        Noise noise;
        uint32_t share = 0;
    };
    static Trailer trailer_of(const Bytes &bytes) {
        Trailer trailer;
        std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
        return trailer;
    }
    // Calls `use` with the range of the payload.
    void with_range(const Step &step, const Bytes &bytes,
                    const std::function<void(const ChunkRange &)> &use) const {
        const Trailer trailer = trailer_of(bytes);
        const Encoding encoding = encoding_of(step, trailer.share);
        use(whole_chunk(encoding.codec, encoding.layout, rehearsal_.type, count_,
                        encoding.codec.dithers() ? trailer.noise : Noise()));
    }

    // Returns the share of the sample that `topk` keeps: the values of the sample that stand for
    // the codec's share of the chunk, largest first.
    uint32_t share_of(const Codec &codec, DataType type, const Bytes &values) const {
        if (codec.row().kind != CodecKind::topk || count_ == whole_) return codec.share;
        std::vector<double> reals(count_);
        load_reals(type, values.data(), count_, reals.data());
        std::vector<std::pair<double, double>> weighted; // magnitudes and weights
        weighted.reserve(count_);
        for (const SampleRun &run : runs_)
            for (uint64_t i = 0; i < run.count; i++)
                weighted.emplace_back(std::abs(reals[weighted.size()]), run.weight);
        std::ranges::sort(weighted, std::greater<>());
        const double wanted =
            static_cast<double>(codec.share) / whole_share * static_cast<double>(whole_);
        double found = 0;
        size_t kept = 0;
        while (kept < weighted.size() && found + weighted[kept].second / 2 < wanted)
            found += weighted[kept++].second;
        // A codec rounds the number of values up.
        const uint64_t share = std::max<uint64_t>(kept, 1) * whole_share / count_;
        return static_cast<uint32_t>(std::clamp<uint64_t>(share, 1, whole_share));
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
        case Verb::decode: {
            const Bytes &bytes = read(rank, step.src);
            with_range(step, bytes, [&](const ChunkRange &range) {
                kernels_.decode(range, bytes.data(), type_in(step.dst), made(rank, step.dst).data(),
                                false);
            });
            return;
        }
        case Verb::decode_add:
            for (uint32_t i = 0; i < step.sources; i++) {
                const Bytes &bytes = read(rank, step.src.after(i));
                with_range(step, bytes, [&](const ChunkRange &range) {
                    kernels_.decode_add(range, RedOp::sum, bytes.data(), at(rank, step.dst).data());
                });
            }
            return;
        case Verb::copy: {
            const Bytes &src = read(rank, step.src);
            kernels_.copy(type_in(step.dst), made(rank, step.dst).data(), type_in(step.src),
                          src.data(), count_, false);
            return;
        }
        case Verb::reduce:
            for (uint32_t i = 0; i < step.sources; i++)
                kernels_.reduce(RedOp::sum, accumulator(), at(rank, step.dst).data(),
                                type_in(step.src), read(rank, step.src.after(i)).data(), count_);
            return;
        }
    }

    void encode(uint32_t rank, const Step &step) {
        const Bytes &values = read(rank, step.src);
        const Codec &codec = codec_of(step);
        const Trailer trailer{
            .noise = {.key = noise_key(codec.seed, step.noise_rank(rank), step.ordinal),
                      .call = call_,
                      .first_index = runs_.front().first},
            .share = share_of(codec, type_in(step.src), values)};
        const Encoding encoding = encoding_of(step, trailer.share);
        Bytes &payload = at(rank, step.dst);
        payload.assign(encoding.layout.bytes + sizeof trailer, std::byte{});
        kernels_.encode(whole_chunk(encoding.codec, encoding.layout, rehearsal_.type, count_),
                        trailer.noise, type_in(step.src), values.data(), payload.data());
        std::memcpy(payload.data() + encoding.layout.bytes, &trailer, sizeof trailer);
    }

    const Kernels &kernels_ = best_kernels();
    const Rehearsal &rehearsal_;
    const Source &inputs_;
    const Script &script_;
    const std::span<const SampleRun> runs_;
    const uint32_t chunk_;
    const uint64_t whole_, call_;
    uint64_t count_ = 0; // of the values of all runs
    std::vector<std::map<std::pair<SlotKind, uint32_t>, Bytes>> memory_;  // by rank
    std::map<std::pair<uint32_t, uint32_t>, std::deque<Bytes>> messages_; // by sender and receiver
};

} // namespace

// ---- Whole sums

Rehearsal rehearsal_of(const Plan &plan, const Problem &problem) {
    return {.algorithm = plan.algorithm,
            .codec = plan.codec,
            .inner_codec = plan.inner_codec,
            .type = problem.type,
            .count = problem.count,
            .ranks = problem.ranks,
            .places = problem.places};
}

Result<std::vector<std::byte>> rehearse(const Rehearsal &rehearsal, const Source &inputs) {
    Bytes result(rehearsal.count * type_bytes(rehearsal.type));
    if (rehearsal.ranks == 1) {
        inputs.read(0, rehearsal.type, 0, rehearsal.count, result.data());
        return result;
    }
    QCCL_TRY(const Script script, Script::of(rehearsal));
    const Layout layout = layout_of(rehearsal, script);
    for (uint32_t chunk = 0; chunk < script.chunks(); chunk++) {
        const ElementRange range = layout.range(output(chunk), chunk);
        if (range.count == 0) continue;
        const SampleRun all{.chunk = chunk, .first = range.index, .count = range.count};
        QCCL_TRY(const Bytes sum,
                 ChunkRun(rehearsal, inputs, script, std::span(&all, 1), range.count).run());
        std::ranges::copy(sum, result.begin() + static_cast<std::ptrdiff_t>(
                                                    range.offset * type_bytes(rehearsal.type)));
    }
    return result;
}

namespace {

// Sums over runs of values, by their weights.
struct WeightedSquares {
    double error = 0, power = 0;

    void add(const SampleRun &run, const std::byte *sum, DataType type, ExactResult &result) {
        std::vector<double> exact(run.count), magnitudes(run.count), summed(run.count);
        result.reals(0, run.first, run.count, exact.data(), magnitudes.data());
        load_reals(type, sum, run.count, summed.data());
        for (uint64_t i = 0; i < run.count; i++) {
            error += run.weight * (summed[i] - exact[i]) * (summed[i] - exact[i]);
            power += run.weight * exact[i] * exact[i];
        }
    }
    // Returns nothing if the sum is zero everywhere or not finite.
    std::optional<double> nmse() const {
        const double nmse = error / power;
        return std::isfinite(nmse) ? std::optional(nmse) : std::nullopt;
    }
};

} // namespace

Result<std::optional<double>> rehearsed_nmse(const Rehearsal &rehearsal, const Source &inputs) {
    QCCL_TRY(const Bytes sum, rehearse(rehearsal, inputs));
    constexpr uint64_t piece = 1 << 14;
    ExactResult result({.type = rehearsal.type, .ranks = rehearsal.ranks, .count = rehearsal.count},
                       inputs);
    WeightedSquares squares;
    for (uint64_t first = 0; first < rehearsal.count; first += piece)
        squares.add({.first = first, .count = std::min(piece, rehearsal.count - first)},
                    sum.data() + first * type_bytes(rehearsal.type), rehearsal.type, result);
    return squares.nmse();
}

// ---- Samples

namespace {

using Runs = std::vector<SampleRun>;

// Cuts every chunk into runs.
Runs runs_of(const Layout &layout, uint64_t run_values) {
    const uint64_t grain = layout.grain(), most = (run_values + grain - 1) / grain * grain;
    Runs runs;
    for (uint32_t chunk = 0; chunk < layout.chunks(); chunk++) {
        const ElementRange range = layout.range(output(chunk), chunk);
        for (uint64_t done = 0; done < range.count; done += most)
            runs.push_back({.chunk = chunk,
                            .first = range.index + done,
                            .count = std::min(most, range.count - done)});
    }
    return runs;
}

// What a run's part in the error is thought to grow with: the squares of the sum, and those of
// equally strong ranks that have the ranks' magnitudes together.
double strength_of(const SampleRun &run, uint32_t ranks, ExactResult &result,
                   std::vector<double> &sums, std::vector<double> &magnitudes) {
    sums.resize(run.count);
    magnitudes.resize(run.count);
    result.reals(0, run.first, run.count, sums.data(), magnitudes.data());
    double strength = 0;
    for (uint64_t i = 0; i < run.count; i++)
        strength += sums[i] * sums[i] + magnitudes[i] * magnitudes[i] / ranks;
    return strength;
}

// Returns for each run with which probability a sample of `wanted` runs takes it. All runs together
// have `count` values. No probability exceeds 1: what the strongest runs would have beyond it goes
// to the others.
std::vector<double> probabilities_of(const Runs &runs, const std::vector<double> &strengths,
                                     double wanted, double count) {
    constexpr double by_length = 0.25;
    const double strength = std::accumulate(strengths.begin(), strengths.end(), 0.0);
    std::vector<double> found(runs.size());
    for (size_t i = 0; i < runs.size(); i++)
        found[i] = std::lerp(strengths[i] / strength, static_cast<double>(runs[i].count) / count,
                             by_length);
    for (bool is_over = true; is_over;) {
        is_over = false;
        double open = 0, sure = 0; // sums of the probabilities below 1, and of those that are 1
        for (const double each : found) (each < 1 ? open : sure) += each < 1 ? each : 1;
        const double factor = open == 0 ? 0 : std::max(0.0, wanted - sure) / open;
        for (double &each : found) {
            if (each >= 1) continue;
            each = std::min(1.0, each * factor);
            is_over |= each == 1;
        }
    }
    return found;
}

// Takes the runs at which the sum of the probabilities passes a half, one and a half, and so on.
Runs taken(const Runs &runs, const std::vector<double> &probabilities) {
    Runs sample;
    double passed = 0.5;
    for (size_t i = 0; i < runs.size(); i++) {
        const double before = std::floor(passed);
        passed += probabilities[i];
        if (probabilities[i] < 1 && std::floor(passed) == before) continue;
        sample.push_back(runs[i]);
        sample.back().weight = 1 / probabilities[i];
    }
    return sample;
}

Runs sample_of(const Rehearsal &rehearsal, const Layout &layout, const SampleSize &size,
               ExactResult &result) {
    Runs runs = runs_of(layout, size.run_values);
    const auto count = static_cast<double>(rehearsal.count);
    const auto all_runs = static_cast<double>(runs.size());
    const double wanted_values =
        std::max(count * size.share, static_cast<double>(size.fewest_values));
    const double wanted_runs = wanted_values / (count / all_runs);
    // Of few runs no part stands for the others.
    constexpr double fewest_runs = 16;
    if (wanted_runs < std::min(fewest_runs, all_runs)) return runs;
    std::vector<double> strengths, sums, magnitudes;
    for (const SampleRun &run : runs)
        strengths.push_back(strength_of(run, rehearsal.ranks, result, sums, magnitudes));
    const double all = std::accumulate(strengths.begin(), strengths.end(), 0.0);
    if (all == 0 || !std::isfinite(all)) return runs;
    return taken(runs, probabilities_of(runs, strengths, wanted_runs, count));
}

} // namespace

Result<std::optional<double>> sampled_nmse(const Rehearsal &rehearsal, const Source &inputs,
                                           const SampleSize &size) {
    if (rehearsal.ranks == 1) return rehearsed_nmse(rehearsal, inputs);
    QCCL_TRY(const Script script, Script::of(rehearsal));
    const Layout layout = layout_of(rehearsal, script);
    ExactResult result({.type = rehearsal.type, .ranks = rehearsal.ranks, .count = rehearsal.count},
                       inputs);
    const Runs sample = sample_of(rehearsal, layout, size, result);
    WeightedSquares squares;
    // Where few values hold most of the squares, the error depends on what noise they get.
    const bool draws = rehearsal.codec.draws_noise() || rehearsal.inner_codec.draws_noise();
    const uint64_t calls = draws ? 4 : 1;
    for (size_t begin = 0, end = 0; begin < sample.size(); begin = end) {
        const uint32_t chunk = sample[begin].chunk;
        while (end < sample.size() && sample[end].chunk == chunk) end++;
        const std::span runs = std::span(sample).subspan(begin, end - begin);
        const uint64_t whole = layout.range(output(chunk), chunk).count;
        for (uint64_t call = 1; call <= calls; call++) {
            QCCL_TRY(const Bytes sum, ChunkRun(rehearsal, inputs, script, runs, whole, call).run());
            const std::byte *values = sum.data();
            for (const SampleRun &run : runs) {
                squares.add(run, values, rehearsal.type, result);
                values += run.count * type_bytes(rehearsal.type);
            }
        }
    }
    return squares.nmse();
}

} // namespace qccl::perf
