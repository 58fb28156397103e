// Finds the measured figures of this machine that QCCL_CALIBRATION or the user's cache directory
// holds. Used by rank 0 where a communicator is made; reads files.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "plan/calibration.hpp"

#include <optional>

namespace qccl {

// Nothing where there are none. Figures of another machine are left alone with a warning. A file
// that QCCL_CALIBRATION names and that cannot be read is an error (invalid_argument), one of the
// cache directory a warning.
Result<std::optional<CalibrationFile>> find_calibration(const Settings &settings, const Log &log);

} // namespace qccl
