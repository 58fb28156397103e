// Makes the SettingsDigest that this rank offers to the others. Called by creation; pure.
#pragma once

#include "api/settings_digest.hpp"
#include "api/comm_config.hpp"
#include "kernels/kernels.hpp"

#include <string>

namespace qccl {

// `host`: identity of this rank's host. The caller adds warnings and calibration.
SettingsDigest digest_of(const CommConfig &comm_config, const Settings &settings,
                         const CallPolicy &policy, const std::string &host, Tier tier);

} // namespace qccl
