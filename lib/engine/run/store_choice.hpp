// Chooses how chunks that peers read are stored: through the cache, or past it (streaming stores).
// A store through the cache has to take the line from the cache of a peer that has read it. That
// costs little between cores that share a last-level cache, and much between others (four times as
// much as the way past it, between two cores of a Zen 4). On a virtual machine the cost changes by
// the second, so the way that is not in use is tried now and then. Both ways store the same bytes.
// The interpreter uses it, on one thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace qccl {

class StoreChoice {
public:
    // Returns true if the next task that encodes should store past the cache.
    bool streams() const { return prefers_streams_ != is_trial(); }

    // Reports the cost of that task: per element, in any unit.
    void took(double cost) {
        const bool was_trial = is_trial();
        position_++;
        // The first tasks of a trial meet cache lines as the other way has left them, so they do
        // not count. Of the other tasks the cheapest counts: it was not interrupted, and such tasks
        // are of the same kind in both ways.
        if (was_trial && position_ > trial / 2) other_ = std::min(other_, cost);
        if (!was_trial && position_ > cycle_ - trial / 2) own_ = std::min(own_, cost);
        if (position_ == trial) decide();
        if (position_ == cycle_) position_ = 0;
    }

private:
    // In tasks. Each cycle begins with a trial of the other way. At the worst ratio that was seen,
    // 5, trials cost 4 % of the time in the long run.
    static constexpr uint32_t trial = 16, shortest_cycle = 64, longest_cycle = 2048;
    static constexpr double unknown = std::numeric_limits<double>::infinity();

    bool is_trial() const { return position_ < trial; }
    void decide() {
        const bool changes = other_ < own_;
        prefers_streams_ = prefers_streams_ != changes;
        cycle_ = changes ? shortest_cycle : std::min(2 * cycle_, longest_cycle);
        own_ = other_ = unknown;
    }

    double own_ = unknown, other_ = unknown;
    uint32_t position_ = trial; // in the cycle; the first cycle has nothing to compare with
    uint32_t cycle_ = shortest_cycle;
    bool prefers_streams_ = true;
};

// One choice for each order of size, lossless or not: such calls work on segments of one size.
class StoreChoices {
public:
    StoreChoice &of(uint64_t bytes, bool is_lossless) {
        return choices_[static_cast<size_t>(std::bit_width(bytes)) * 2 + (is_lossless ? 1 : 0)];
    }

private:
    std::array<StoreChoice, size_t{2} * 65> choices_{};
};

} // namespace qccl
