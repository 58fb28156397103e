// What a rank makes for a communicator before it meets the others: its log and its device. What the
// settings say wrong is found here, where the others can still hear of it.
#pragma once

#include "api/wishes.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "device/device.hpp"
#include "plan/calibration.hpp"

#include <memory>
#include <optional>
#include <string>

namespace qccl {

struct Equipment {
    std::shared_ptr<const Log> log;
    Device device;
    std::string host;                           // its identity
    std::optional<CalibrationFile> calibration; // that rank 0 has found
};

Result<Equipment> equip(uint32_t rank, const CommWishes &wishes, const Surroundings &surroundings);

} // namespace qccl
