#include "plan/shared_links.hpp"

#include <map>

namespace qccl {

void take_settings(const Settings &settings, const Places *places, SharedLinks &links) {
    if (!settings.rack_rate || !places) return;
    // The first network contains the racks.
    RackLines lines{.parent = {0}, .byte_ns = {0}, .rack_of = {}};
    std::map<uint32_t, uint32_t> numbers; // by rack
    for (uint32_t rank = 0; rank < places->ranks(); rank++) {
        const auto [known, is_new] =
            numbers.try_emplace(places->of(rank).rack, static_cast<uint32_t>(lines.parent.size()));
        lines.rack_of.push_back(known->second);
        if (!is_new) continue;
        lines.parent.push_back(0);
        lines.byte_ns.push_back(1e9 / static_cast<double>(*settings.rack_rate));
    }
    if (numbers.size() > 1) links.racks = std::make_shared<const RackLines>(std::move(lines));
}

} // namespace qccl
