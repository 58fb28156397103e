// Searches one rank's runs for encodes that only copy, and decides which of them peers can read in
// place without a deadlock.
#include "engine/lendable.hpp"

#include <algorithm>

namespace qccl {
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

    Lendable look(const StepRun &run, uint32_t encode) const {
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

std::vector<Lendable> find_lendable(const Schedule &schedule, std::span<const StepRun> runs) {
    const LendAnalysis analysis(schedule, runs);
    std::vector<Lendable> found;
    for (const StepRun &run : runs)
        for (uint32_t i = run.first; i < run.last; i++) {
            const Step &step = schedule.steps[i];
            if (step.verb != Verb::encode) continue;
            if (step.ordinal >= found.size()) found.resize(size_t{step.ordinal} + 1);
            found[step.ordinal] = analysis.look(run, i);
        }
    return found;
}

} // namespace qccl
