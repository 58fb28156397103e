// Finds the figures measured on this machine: in the file that QCCL_CALIBRATION names, or in the
// user's cache directory. Rank 0 uses it when a communicator is created, and so do the tools. It
// reads files.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "plan/calibration.hpp"

#include <optional>
#include <string>

namespace qccl {

inline constexpr const char *calibration_off = "off"; // value of QCCL_CALIBRATION

// Returns invalid_argument, or system_error if reading fails. The error's text does not name the
// path.
Result<CalibrationFile> read_calibration(const std::string &path);

struct FoundCalibration {
    std::optional<CalibrationFile> file; // nothing: there is none, or it is another machine's
    std::string path;                    // of the file, if there is one
    std::string warning;                 // why a file is ignored, in part or as a whole; or empty
};

// Figures of another machine are ignored with a warning, and so is a file of the cache directory
// that cannot be read. If the file that QCCL_CALIBRATION names cannot be read, returns
// invalid_argument.
Result<FoundCalibration> find_calibration(const Settings &settings);

} // namespace qccl
