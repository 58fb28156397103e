#include "plan/shared_links.hpp"

#include <map>
#include <optional>

namespace qccl {

namespace {

// Network 0 contains the racks. Nothing: there is one rack.
std::optional<RackLines> lines_of_racks(const Places &places) {
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

void take_settings(const Settings &settings, const Places *places, SharedLinks &links) {
    if (!settings.rack_rate || !places) return;
    std::optional<RackLines> lines = links.racks ? *links.racks : lines_of_racks(*places);
    if (!lines) return;
    const double byte_ns = 1e9 / static_cast<double>(*settings.rack_rate);
    for (size_t network = 1; network < lines->byte_ns.size(); network++)
        lines->byte_ns[network] = byte_ns;
    links.racks = std::make_shared<const RackLines>(std::move(*lines));
}

} // namespace qccl
