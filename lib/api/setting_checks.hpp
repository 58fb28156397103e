// Checks what settings and a config say together, beyond the form of each. Creation calls it on
// every rank before the ranks compare their settings.
#pragma once

#include "api/wishes.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"

namespace qccl {

inline constexpr const char *record_off = "off"; // QCCL_RECORD

// An error (invalid_argument) names the setting, its value and what is possible. Reads the file
// system where a setting names a folder.
Done check_settings(const CommWishes &wishes, const Settings &settings);

} // namespace qccl
