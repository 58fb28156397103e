// Rates of racks' links, and racks that only the settings and places describe.
#include "plan/shared_links.hpp"

#include <algorithm>
#include <map>
#include <optional>

namespace qccl {

namespace {

// Returns a network for each rack, and network 0 around them; nothing if there is one rack.
std::optional<RackLines> lines_of_racks(const RankTopology &places) {
    RackLines lines{.parent = {0}, .byte_ns = {0}, .rack_of = {}};
    std::map<uint32_t, uint32_t> numbers; // by rack
    for (uint32_t rank = 0; rank < places.ranks(); rank++) {
        const auto next = static_cast<uint32_t>(numbers.size() + 1);
        lines.rack_of.push_back(numbers.try_emplace(places.of(rank).rack, next).first->second);
    }
    lines.parent.resize(numbers.size() + 1);
    lines.byte_ns.resize(lines.parent.size());
    return numbers.size() > 1 ? std::optional(std::move(lines)) : std::nullopt;
}

} // namespace

std::optional<double> RackLines::slowest_bytes_per_ns() const {
    double most = 0; // ns a byte
    for (size_t i = 1; i < rack_of.size(); i++)
        each_line(rack_of[i - 1], rack_of[i], [&](uint32_t network, bool /*is_up*/) {
            most = std::max(most, byte_ns[network]);
        });
    return most > 0 ? std::optional(1 / most) : std::nullopt;
}

void take_settings(const Settings &settings, const RankTopology *places, SharedLinks &links) {
    std::optional<RackLines> lines;
    if (links.racks) lines = *links.racks;
    if (settings.rack_rate && places) {
        if (!lines) lines = lines_of_racks(*places);
        const double byte_ns = 1e9 / static_cast<double>(*settings.rack_rate);
        for (size_t network = 1; lines && network < lines->byte_ns.size(); network++)
            lines->byte_ns[network] = byte_ns;
    }
    const bool is_known = lines && lines->slowest_bytes_per_ns();
    links.racks = is_known ? std::make_shared<const RackLines>(std::move(*lines)) : nullptr;
}

} // namespace qccl
