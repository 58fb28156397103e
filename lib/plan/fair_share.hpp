// Rates of flows that share links fairly (max-min): no flow can have more without taking from a
// flow that has no more than it. When flows begin or end, only the links that this affects are
// computed again. Used by the simulator; one thread, nothing blocks.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace qccl {

class FairShare {
public:
    static constexpr double unlimited = std::numeric_limits<double>::infinity();
    static constexpr uint32_t most_uses = 8;

    // A flow counts on the link as `weight` flows of its rate.
    struct Use {
        uint32_t link = 0;
        double weight = 1;
    };

    uint32_t add_link(double capacity);

    // Begins a flow and returns its number. The flow has no rate before settle(). Numbers of flows
    // that have ended are reused. `uses` has at most `most_uses` links, each once; if it is empty,
    // most_rate has to be finite.
    uint32_t begin(std::span<const Use> uses, double most_rate = unlimited);
    void end(uint32_t flow);
    double rate(uint32_t flow) const { return flows_[flow].rate; }

    // Computes the rates, and calls changed(flow) for each flow whose rate differs from that of the
    // last call. The order of these calls depends only on the calls made.
    template <class Changed> void settle(Changed changed) {
        find_levels();
        for (const uint32_t flow : begun_)
            if (flows_[flow].is_active) refresh(flow, changed);
        begun_.clear();
        for (const uint32_t link : moved_) {
            links_[link].has_moved = false;
            for (const uint32_t flow : links_[link].flows) refresh(flow, changed);
        }
        moved_.clear();
    }

private:
    struct Flow {
        std::array<Use, most_uses> uses{};
        std::array<uint32_t, most_uses> positions{}; // in the links' lists of flows
        uint32_t count = 0;
        bool is_active = false;
        double most_rate = unlimited;
        double rate = 0;
    };
    struct Link {
        double capacity = 0;
        double level = unlimited; // the highest rate that the link lets one flow have
        std::vector<uint32_t> flows;
        bool is_dirty = false, has_moved = false;
    };

    template <class Changed> void refresh(uint32_t number, Changed &changed) {
        Flow &flow = flows_[number];
        const double rate = limit(flow, flow.count);
        if (rate == flow.rate) return;
        flow.rate = rate;
        changed(number);
    }

    // Returns the rate that the flow could have if the link at position `without` did not limit it.
    // `without` equal to `count` leaves no link out.
    double limit(const Flow &flow, uint32_t without) const;
    void mark(uint32_t link);
    void find_levels();
    double level_of(const Link &link, uint32_t number);
    void set_level(uint32_t number, double level);

    std::vector<Flow> flows_;
    std::vector<Link> links_;
    std::vector<uint32_t> free_;
    std::vector<uint32_t> dirty_, begun_, moved_;
    std::vector<Use> open_; // scratch; `link` is an index of limits_
    std::vector<double> limits_;
};

} // namespace qccl
