#include "engine/homes.hpp"

#include <algorithm>

namespace qccl {
namespace {

bool is_sum(Slot slot) { return slot.is(SlotKind::accumulator); }

// Calls visit(chunk) for each accumulator that the step reads or writes.
template <class Visit> void each_sum(const Step &step, Visit visit) {
    if (is_sum(step.dst)) visit(step.dst.index);
    if (!is_sum(step.src)) return;
    for (uint32_t i = 0; i < step.sources; i++) visit(step.src.index + i);
}

class Finder {
public:
    Finder(const Fused &fused, std::span<const StepRun> runs, bool joins)
        : fused_(fused), runs_(runs), joins_(joins), users_(fused.schedule.chunks) {
        homes_.of.resize(fused.schedule.chunks);
    }

    Homes find() && {
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
                    if (homes_.of[chunk].is(Place::Kind::none)) settle(run, chunk, tiles);
                });
            homes_.tile_buffers = std::max(homes_.tile_buffers, tiles);
        }
        return std::move(homes_);
    }

private:
    std::span<const Step> steps(uint32_t run) const {
        return std::span(fused_.schedule.steps)
            .subspan(runs_[run].first, runs_[run].last - runs_[run].first);
    }

    void settle(uint32_t run, uint32_t chunk, uint32_t &tiles) {
        Place &home = homes_.of[chunk];
        if (!joins_ || !fused_.is_local[chunk]) {
            home = {Place::Kind::segment, take_buffer(run, chunk)};
            return;
        }
        home = {Place::Kind::tile, tiles++};
    }

    // A buffer whose last owner is through by then, in the schedule's order; since tasks run in any
    // order that their dependencies allow, that owner's runs become dependencies.
    uint32_t take_buffer(uint32_t run, uint32_t chunk) {
        for (uint32_t i = 0; i < owners_.size(); i++) {
            const std::vector<uint32_t> &past = users_[owners_[i]];
            if (past.back() >= run) continue;
            for (const uint32_t earlier : past)
                for (const uint32_t later : users_[chunk])
                    homes_.orders.push_back({earlier, later});
            owners_[i] = chunk;
            return i;
        }
        owners_.push_back(chunk);
        return homes_.segment_buffers++;
    }

    const Fused &fused_;
    const std::span<const StepRun> runs_;
    const bool joins_;
    std::vector<std::vector<uint32_t>> users_; // of each accumulator: the runs, ascending
    std::vector<uint32_t> owners_;             // of each buffer: the accumulator that has it
    Homes homes_;
};

} // namespace

Homes find_homes(const Fused &fused, std::span<const StepRun> runs, bool joins) {
    return Finder(fused, runs, joins).find();
}

} // namespace qccl
