// Finds the measured figures of this machine that QCCL_CALIBRATION or the user's cache directory
// holds. Used by rank 0 where a communicator is made, and by the tools; reads files.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "plan/calibration.hpp"

#include <optional>
#include <string>

namespace qccl {

inline constexpr const char *calibration_off = "off"; // QCCL_CALIBRATION

// An error (invalid_argument, or system_error while it is read) does not name the path.
Result<CalibrationFile> read_calibration(const std::string &path);

struct FoundCalibration {
    std::optional<CalibrationFile> file; // nothing: there is none, or none of this machine
    std::string path;                    // of the file, if there is one
    std::string warning; // a sentence on a file that is left alone, in part or all; or empty
};

// Figures of another machine are left alone with a warning, and so is a file of the cache directory
// that cannot be read; one that QCCL_CALIBRATION names is an error then (invalid_argument).
Result<FoundCalibration> find_calibration(const Settings &settings);

} // namespace qccl
