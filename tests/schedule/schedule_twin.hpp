// A slow reference that runs schedules: all ranks in one thread, one float for each chunk, step by
// step, in the schedule's order or in any order that the dependencies allow. Tests compare its
// results with the contract's sums.
#pragma once

#include "tests/kit/qtest.hpp"

#include "schedule/lower.hpp"
#include "schedule/schedule.hpp"

#include <cmath>
#include <deque>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace qccl {

// Stands for a codec: loses bits, and other bits in every encode step, as noise does. Another step
// rounds again what one step has rounded.
inline float quantize(float value, uint32_t rank, uint32_t ordinal) {
    const uint32_t step = (rank * 31 + ordinal * 17) % 13;
    const float noise = static_cast<float>(step) / 13.0F, levels = 64.0F + static_cast<float>(step);
    return std::floor(value * levels + noise) / levels;
}

class ScheduleTwin {
public:
    // inputs[rank][chunk]. Memory that was never written holds NaNs.
    ScheduleTwin(std::vector<Schedule> schedules, const std::vector<std::vector<float>> &inputs)
        : schedules_(std::move(schedules)) {
        for (uint32_t rank = 0; rank < schedules_.size(); rank++) {
            Schedule &s = schedules_[rank];
            dependencies_.push_back(lower(s));
            done_.emplace_back(s.steps.size(), false);
            memory_[{rank, SlotKind::input}] = inputs[rank];
            memory_[{rank, SlotKind::output}].assign(s.chunks, NAN);
            memory_[{rank, SlotKind::accumulator}].assign(s.chunks, NAN);
            memory_[{rank, SlotKind::wire}].assign(s.wires, NAN);
        }
    }

    // Returns whether all ranks finished.
    bool run_in_order() {
        for (bool moves = true; moves;) {
            moves = false;
            for (uint32_t rank = 0; rank < schedules_.size(); rank++)
                for (size_t i = 0; i < done_[rank].size(); i++) {
                    if (done_[rank][i]) continue;
                    if (!try_step(rank, i)) break;
                    moves = true;
                }
        }
        return is_done();
    }

    bool run_in_any_order(uint32_t seed) {
        std::mt19937 random(seed);
        while (true) {
            std::vector<std::pair<uint32_t, size_t>> ready;
            for (uint32_t rank = 0; rank < schedules_.size(); rank++)
                for (size_t i = 0; i < done_[rank].size(); i++)
                    if (!done_[rank][i] && is_ready(rank, i)) ready.emplace_back(rank, i);
            if (ready.empty()) return is_done();
            const auto [rank, i] = ready[random() % ready.size()];
            execute(rank, i);
        }
    }

    const std::vector<float> &outputs(uint32_t rank) const {
        return memory_.at({rank, SlotKind::output});
    }

private:
    float &at(uint32_t rank, Slot slot) { return memory_.at({rank, slot.what()}).at(slot.index); }

    bool is_done() const {
        for (const auto &steps : done_)
            for (const bool done : steps)
                if (!done) return false;
        return true;
    }
    bool has_come(uint32_t rank, const Step &step) const {
        return step.verb != Verb::recv || messages_.contains({step.peer, rank, step.ordinal});
    }
    bool is_ready(uint32_t rank, size_t i) const {
        for (const uint32_t earlier : dependencies_[rank].of(i))
            if (!done_[rank][earlier]) return false;
        return has_come(rank, schedules_[rank].steps[i]);
    }
    bool try_step(uint32_t rank, size_t i) {
        if (!has_come(rank, schedules_[rank].steps[i])) return false;
        execute(rank, i);
        return true;
    }

    void execute(uint32_t rank, size_t i) {
        const Step &step = schedules_[rank].steps[i];
        const auto ranks = static_cast<float>(schedules_.size());
        done_[rank][i] = true;
        switch (step.verb) {
        case Verb::send: messages_[{rank, step.peer, step.ordinal}] = at(rank, step.src); return;
        case Verb::recv: at(rank, step.dst) = messages_.at({step.peer, rank, step.ordinal}); return;
        case Verb::reduce:
        case Verb::decode_add:
            for (uint32_t k = 0; k < step.sources; k++) {
                float &sum = at(rank, step.dst);
                const float term = at(rank, step.src.after(k));
                sum = std::isnan(sum) ? term : sum + term;
            }
            return;
        default: break;
        }
        float value = at(rank, step.src);
        if (step.has(Step::finishes)) value /= ranks;
        at(rank, step.dst) = step.verb == Verb::encode
                                 ? quantize(value, step.noise_rank(rank), step.ordinal)
                                 : value;
    }

    std::vector<Schedule> schedules_;
    std::vector<Dependencies> dependencies_;
    std::vector<std::vector<bool>> done_;
    std::map<std::pair<uint32_t, SlotKind>, std::vector<float>> memory_;
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, float> messages_; // key: from, to, ordinal
};

// Returns inputs[rank][chunk], all different.
inline std::vector<std::vector<float>> twin_inputs(uint32_t ranks, uint32_t chunks) {
    std::mt19937 random(ranks * 1000 + chunks);
    std::normal_distribution<float> gauss;
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(chunks));
    for (auto &rank : inputs)
        for (float &value : rank) value = gauss(random);
    return inputs;
}

} // namespace qccl
