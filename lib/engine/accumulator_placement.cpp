// Gives tile buffers to accumulators that live within one run, and shares segment buffers among the
// others in the schedule's order.
#include "engine/accumulator_placement.hpp"

#include <algorithm>

namespace qccl {
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

} // namespace qccl
