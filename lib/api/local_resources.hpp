// What a rank makes for a communicator before it meets the others: its log and its device. Wrong
// settings are found here, where the other ranks can still learn of them. Called by creation; it
// does not wait for other ranks.
#pragma once

#include "api/comm_config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "device/device.hpp"
#include "plan/calibration.hpp"

#include <memory>
#include <optional>
#include <string>

namespace qccl {

struct LocalResources {
    std::shared_ptr<const Log> log;
    Device device;
    std::string host;                           // identity of this rank's host
    std::optional<CalibrationFile> calibration; // that rank 0 has found
};

// An error is this rank's alone; the caller tells the other ranks.
Result<LocalResources> open_local_resources(uint32_t rank, const CommConfig &comm_config,
                                            const EnvSettings &env_settings);

} // namespace qccl
