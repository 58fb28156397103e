// Finds each link's level, the highest rate that it lets one flow have.
#include "plan/fair_share.hpp"

#include <algorithm>
#include <cmath>

namespace qccl {

namespace {

// Two levels are equal if their relative difference is smaller.
constexpr double tolerance = 1e-12;

bool differ(double a, double b) {
    if (std::isinf(a) || std::isinf(b)) return a != b;
    return std::abs(a - b) > tolerance * std::max(a, b);
}

} // namespace

uint32_t FairShare::add_link(double capacity) {
    links_.push_back({.capacity = capacity, .level = unlimited, .flows = {}});
    return static_cast<uint32_t>(links_.size() - 1);
}

uint32_t FairShare::begin(std::span<const Use> uses, double most_rate) {
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(flows_.size()));
        flows_.emplace_back();
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    Flow &flow = flows_[number];
    flow.count = static_cast<uint32_t>(uses.size());
    flow.is_active = true;
    flow.most_rate = most_rate;
    flow.rate = 0;
    for (uint32_t i = 0; i < flow.count; i++) {
        Link &link = links_[uses[i].link];
        flow.uses[i] = uses[i];
        flow.positions[i] = static_cast<uint32_t>(link.flows.size());
        link.flows.push_back(number);
        mark(uses[i].link);
    }
    begun_.push_back(number);
    return number;
}

void FairShare::end(uint32_t number) {
    Flow &flow = flows_[number];
    for (uint32_t i = 0; i < flow.count; i++) {
        Link &link = links_[flow.uses[i].link];
        const uint32_t moved = link.flows.back();
        link.flows[flow.positions[i]] = moved;
        for (uint32_t k = 0; k < flows_[moved].count; k++)
            if (flows_[moved].uses[k].link == flow.uses[i].link)
                flows_[moved].positions[k] = flow.positions[i];
        link.flows.pop_back();
        mark(flow.uses[i].link);
    }
    flow.is_active = false;
    free_.push_back(number);
}

double FairShare::limit(const Flow &flow, uint32_t without) const {
    double least = flow.most_rate;
    for (uint32_t i = 0; i < flow.count; i++)
        if (i != without) least = std::min(least, links_[flow.uses[i].link].level);
    return least;
}

void FairShare::mark(uint32_t link) {
    if (links_[link].is_dirty) return;
    links_[link].is_dirty = true;
    dirty_.push_back(link);
}

// A link's level depends on what its flows could have elsewhere, which depends on the levels of
// other links. No level is ever below the smallest fair share of all links, so the level of the
// link with that share is right once it has been computed; then the next smallest is, and so on.
void FairShare::find_levels() {
    for (size_t i = 0; i < dirty_.size(); i++) {
        const uint32_t number = dirty_[i];
        links_[number].is_dirty = false;
        const double level = level_of(links_[number], number);
        if (differ(level, links_[number].level)) set_level(number, level);
    }
    dirty_.clear();
}

// Flows that are limited elsewhere take what they can have. The other flows share the rest.
double FairShare::level_of(const Link &link, uint32_t number) {
    open_.clear();
    limits_.clear();
    double left = link.capacity, weights = 0;
    for (const uint32_t each : link.flows) {
        const Flow &flow = flows_[each];
        uint32_t at = 0;
        while (flow.uses[at].link != number) at++;
        open_.push_back({static_cast<uint32_t>(limits_.size()), flow.uses[at].weight});
        limits_.push_back(limit(flow, at));
        weights += flow.uses[at].weight;
    }
    while (!open_.empty()) {
        const double level = left / weights;
        const auto is_limited = [&](const Use &use) {
            if (limits_[use.link] >= level * (1 - tolerance)) return false;
            left -= use.weight * limits_[use.link];
            weights -= use.weight;
            return true;
        };
        if (std::erase_if(open_, is_limited) == 0) return level;
    }
    return unlimited;
}

// Marks another link if the rate that a flow could have here is, or was, below what that link lets
// it have.
void FairShare::set_level(uint32_t number, double level) {
    Link &link = links_[number];
    const double least = std::min(level, link.level);
    link.level = level;
    if (!link.has_moved) moved_.push_back(number);
    link.has_moved = true;
    for (const uint32_t each : link.flows) {
        const Flow &flow = flows_[each];
        for (uint32_t i = 0; i < flow.count; i++) {
            const uint32_t other = flow.uses[i].link;
            if (other != number && least < links_[other].level) mark(other);
        }
    }
}

} // namespace qccl
