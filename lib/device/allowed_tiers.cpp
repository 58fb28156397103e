// Reads the names of SIMD tiers in QCCL_TIER.
#include "device/allowed_tiers.hpp"

#include "base/settings.hpp"
#include "base/text.hpp"
#include "device/kernels.hpp"

#include <algorithm>
#include <string>
#include <string_view>

namespace qccl {

// The settings' reader accepts "auto" before this is called, but "auto" is what most users would
// write.
static Names possible_tiers() {
    Names names(tier_names.begin(), tier_names.end());
    names.push_back("auto");
    return names;
}

static Result<uint32_t> parse_tiers(const std::string &names) {
    uint32_t mask = 0;
    for (size_t begin = 0; begin <= names.size();) {
        const size_t end = std::min(names.find(',', begin), names.size());
        const std::string_view name = std::string_view(names).substr(begin, end - begin);
        const auto *found = std::find(tier_names.begin(), tier_names.end(), name);
        if (found == tier_names.end()) return no_choice("QCCL_TIER", name, possible_tiers());
        mask |= 1U << (found - tier_names.begin());
        begin = end + 1;
    }
    return mask;
}

Result<uint32_t> allowed_tiers(const Settings &settings) {
    if (!settings.tier) return ~0U;
    return parse_tiers(*settings.tier);
}

} // namespace qccl
