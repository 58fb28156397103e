// Computes what state_twin.hpp declares. The ranks take turns: each runs its steps until it needs a
// message that has not been sent.
#include "tests/engine/state_twin.hpp"

#include "tests/kit/qtest.hpp"

#include "codec/chunk.hpp"
#include "coll/algorithm.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "schedule/lower.hpp"
#include "schedule/shape.hpp"

#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

namespace qtest {

using namespace qccl;

namespace {

const Kernels &kernels() { return scalar_kernels(); }

using Messages = std::map<std::pair<uint32_t, uint32_t>, std::deque<Bytes>>; // by sender, receiver

template <class T>
void keep_errors(Bytes &residual, uint64_t at, const Bytes &values, const Bytes &decoded,
                 uint32_t factor) {
    for (size_t i = 0; i < values.size() / sizeof(T); i++) {
        T value, got, kept;
        std::memcpy(&value, values.data() + i * sizeof(T), sizeof(T));
        std::memcpy(&got, decoded.data() + i * sizeof(T), sizeof(T));
        std::byte *const place = residual.data() + (at + i) * sizeof(T);
        std::memcpy(&kept, place, sizeof(T));
        const T lost = value - got;
        const T counted = lost * static_cast<T>(factor);
        kept += counted;
        if (!std::isfinite(kept)) kept = 0;
        std::memcpy(place, &kept, sizeof(T));
    }
}

// Replaces each value by the next velocity, and keeps those that are finite.
template <class T> void add_velocities(Bytes &sums, Bytes &velocities, uint32_t thousandths) {
    const T momentum = static_cast<T>(thousandths) / 1000;
    for (size_t at = 0; at < sums.size(); at += sizeof(T)) {
        T value, velocity;
        std::memcpy(&value, sums.data() + at, sizeof(T));
        std::memcpy(&velocity, velocities.data() + at, sizeof(T));
        const T slower = velocity * momentum;
        value = slower + value;
        std::memcpy(sums.data() + at, &value, sizeof(T));
        if (!std::isfinite(value)) value = 0;
        std::memcpy(velocities.data() + at, &value, sizeof(T));
    }
}

class RankRun {
public:
    RankRun(const TwinCall &call, uint32_t rank, const Schedule &placed, const Layout &layout,
            const Bytes &input, Feedback feedback)
        : call_(call), rank_(rank), steps_(placed.steps), layout_(layout), input_(input),
          feedback_(feedback), sums_(placed.chunks), wires_(placed.wires),
          output_(recv_count(call, rank) * type_bytes(call.type)), residual_(input.size()),
          sent_(input.size() / type_bytes(sum_type())) {}

    // Runs steps as far as messages have come. Returns whether it has run any.
    bool advance(Messages &messages) {
        bool has_moved = false;
        for (; next_ < steps_.size(); next_++, has_moved = true) {
            const Step &step = steps_[next_];
            if (step.verb == Verb::recv) {
                std::deque<Bytes> &from = messages[{step.peer, rank_}];
                if (from.empty()) break;
                wires_[step.dst.index] = from.front();
                from.pop_front();
            } else if (step.verb == Verb::send) {
                messages[{rank_, step.peer}].push_back(wires_[step.src.index]);
            } else {
                compute(step);
            }
        }
        return has_moved;
    }
    bool has_ended() const { return next_ == steps_.size(); }
    Bytes &output() { return output_; }
    Bytes &residual() { return residual_; }
    std::vector<bool> &sent() { return sent_; }

private:
    DataType sum_type() const { return accumulator_of(call_.type); }
    DataType type_of(Slot slot) const {
        return slot.is(SlotKind::output) ? call_.type : sum_type();
    }
    const Codec &codec_of(const Step &step) const {
        return step.has(Step::inner) ? call_.inner_codec : call_.codec;
    }

    // Returns the values of a slot that is no wire slot.
    Bytes load(Slot slot, uint32_t chunk) const {
        if (slot.is(SlotKind::accumulator)) return sums_[slot.index];
        const bool is_input = slot.is(SlotKind::input);
        const Bytes &whole = is_input ? input_ : output_;
        const ElementRange range = layout_.range(slot, chunk);
        const size_t bytes = type_bytes(type_of(slot));
        const auto begin = whole.begin() + static_cast<long>(range.offset * bytes);
        return {begin, begin + static_cast<long>(range.count * bytes)};
    }
    void store(Slot slot, uint32_t chunk, const Bytes &values) {
        if (slot.is(SlotKind::accumulator)) {
            sums_[slot.index] = values;
            return;
        }
        const size_t at = layout_.range(slot, chunk).offset * type_bytes(type_of(slot));
        std::copy(values.begin(), values.end(), output_.begin() + static_cast<long>(at));
    }
    Bytes converted(DataType to, DataType from, const Bytes &values) const {
        const size_t count = values.size() / type_bytes(from);
        Bytes result(count * type_bytes(to));
        kernels().copy(to, result.data(), from, values.data(), count, false);
        return result;
    }
    Bytes decoded(const Step &step, Slot wire, DataType to) const {
        const Codec &codec = codec_of(step);
        const uint64_t count = layout_.range({}, step.chunk).count;
        const PayloadLayout layout = payload_layout(codec, call_.type, count);
        Bytes values(count * type_bytes(to));
        const Bytes &payload = wires_[wire.index];
        ChunkRange range{&codec, &layout, call_.type, count, 0, count};
        std::memcpy(&range.noise, payload.data() + layout.bytes, sizeof range.noise);
        kernels().decode(range, payload.data(), to, values.data(), false);
        return values;
    }

    void compute(const Step &step) {
        if (step.has(Step::finishes) && call_.op == RedOp::avg && call_.ranks > 1) {
            Bytes &sum = sums_[step.src.index];
            kernels().divide(sum_type(), sum.data(), sum.size() / type_bytes(sum_type()),
                             call_.ranks);
        }
        switch (step.verb) {
        case Verb::copy:
            store(step.dst, step.chunk,
                  converted(type_of(step.dst), type_of(step.src), load(step.src, step.chunk)));
            break;
        case Verb::reduce:
            for (uint32_t i = 0; i < step.sources; i++)
                add(step, type_of(step.src), load(step.src.after(i), step.chunk));
            break;
        case Verb::encode: encode(step); break;
        case Verb::decode:
            store(step.dst, step.chunk, decoded(step, step.src, type_of(step.dst)));
            break;
        case Verb::decode_add: add(step, sum_type(), decoded(step, step.src, sum_type())); break;
        case Verb::send:
        case Verb::recv: break;
        }
    }

    void add(const Step &step, DataType type, const Bytes &values) {
        kernels().reduce(call_.op, sum_type(), sums_[step.dst.index].data(), type, values.data(),
                         values.size() / type_bytes(type));
    }

    void encode(const Step &step) {
        const Codec &codec = codec_of(step);
        const ElementRange range = layout_.range({}, step.chunk);
        const PayloadLayout layout = payload_layout(codec, call_.type, range.count);
        const Bytes values = load(step.src, step.chunk);
        Bytes &payload = wires_[step.dst.index];
        payload.assign(layout.bytes + sizeof(Noise), std::byte{0});
        const uint32_t noise_rank = step.noise_rank(rank_);
        const Noise noise{noise_key(call_.seed, noise_rank, step.ordinal), call_.number,
                          range.index};
        kernels().encode({&codec, &layout, call_.type, range.count, 0, range.count}, noise,
                         type_of(step.src), values.data(), payload.data());
        std::memcpy(payload.data() + layout.bytes, &noise, sizeof noise);
        const bool is_complete = step.has(Step::finishes);
        if (codec.is_lossless() || noise_rank != rank_) return;
        if (feedback_ == Feedback::none || (feedback_ == Feedback::first && is_complete)) return;
        const uint32_t factor = is_complete && call_.op == RedOp::avg ? call_.ranks : 1;
        const Bytes got = decoded(step, step.dst, sum_type());
        for (size_t i = 0; i < range.count; i++)
            if (load_float(sum_type(), got.data(), i) != 0) sent_[range.index + i] = true;
        if (sum_type() == DataType::float64)
            keep_errors<double>(residual_, range.index, values, got, factor);
        else
            keep_errors<float>(residual_, range.index, values, got, factor);
    }

    const TwinCall &call_;
    const uint32_t rank_;
    const std::vector<Step> &steps_;
    const Layout &layout_;
    const Bytes &input_;
    const Feedback feedback_;
    size_t next_ = 0;
    std::vector<Bytes> sums_;  // by chunk
    std::vector<Bytes> wires_; // payloads, each with its noise behind it
    Bytes output_, residual_;
    std::vector<bool> sent_;
};

} // namespace

std::vector<Bytes> with_residuals(const TwinCall &call, const std::vector<Bytes> &inputs,
                                  const std::vector<Bytes> &residuals) {
    const DataType sum_type = accumulator_of(call.type);
    std::vector<Bytes> sums;
    for (size_t rank = 0; rank < inputs.size(); rank++) {
        const size_t count = inputs[rank].size() / type_bytes(call.type);
        Bytes &sum = sums.emplace_back(count * type_bytes(sum_type));
        kernels().copy(sum_type, sum.data(), call.type, inputs[rank].data(), count, false);
        kernels().reduce(RedOp::sum, sum_type, sum.data(), sum_type, residuals[rank].data(), count);
    }
    return sums;
}

std::vector<Bytes> with_residuals(const TwinCall &call, const std::vector<Bytes> &inputs,
                                  const std::vector<Bytes> &residuals, TwinVelocities &velocities) {
    if (velocities.momentum == 0) return with_residuals(call, inputs, residuals);
    const DataType sum_type = accumulator_of(call.type);
    TwinCall wide = call;
    wide.type = sum_type;
    std::vector<Bytes> values;
    for (size_t rank = 0; rank < inputs.size(); rank++) {
        const size_t count = inputs[rank].size() / type_bytes(call.type);
        Bytes &sum = values.emplace_back(count * type_bytes(sum_type));
        kernels().copy(sum_type, sum.data(), call.type, inputs[rank].data(), count, false);
        if (sum_type == DataType::float64)
            add_velocities<double>(sum, velocities.values[rank], velocities.momentum);
        else
            add_velocities<float>(sum, velocities.values[rank], velocities.momentum);
    }
    return with_residuals(wide, values, residuals);
}

void TwinVelocities::mask(const TwinCall &call, const TwinStates &states) {
    if (momentum == 0) return;
    const auto bytes = static_cast<long>(type_bytes(accumulator_of(call.type)));
    for (size_t rank = 0; rank < values.size(); rank++)
        for (size_t i = 0; i < states.sent[rank].size(); i++)
            if (states.sent[rank][i])
                std::fill_n(values[rank].begin() + static_cast<long>(i) * bytes, bytes,
                            std::byte{0});
}

TwinStates state_twin(const TwinCall &call, const std::vector<Bytes> &inputs, Feedback feedback) {
    const auto places = make_rank_topology(call.spots, call.rings);
    std::vector<Schedule> placed(call.ranks);
    std::vector<Layout> layouts;
    std::vector<RankRun> runs;
    for (uint32_t rank = 0; rank < call.ranks; rank++) {
        const Team team{
            .size = call.ranks, .rank = rank, .root = call.root, .places = places.get()};
        const auto author = emit(*parse_algorithm(call.algorithm), call.collective, team);
        CHECK_OK(author);
        auto schedule = place_codec(*author, call.codec.owner);
        CHECK_OK(schedule);
        placed[rank] = std::move(*schedule);
        layouts.emplace_back(call.collective, call.count, team, author->chunks,
                             grain(call.codec, call.inner_codec));
    }
    for (uint32_t rank = 0; rank < call.ranks; rank++)
        runs.emplace_back(call, rank, placed[rank], layouts[rank], inputs[rank], feedback);
    Messages messages;
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (RankRun &run : runs) has_moved |= run.advance(messages);
    }
    TwinStates states;
    for (RankRun &run : runs) {
        CHECK(run.has_ended());
        states.outputs.push_back(std::move(run.output()));
        states.residuals.push_back(std::move(run.residual()));
        states.sent.push_back(std::move(run.sent()));
    }
    return states;
}

} // namespace qtest
