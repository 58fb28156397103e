// Finds the figures measured on this machine: in the file that QCCL_CALIBRATION names, or in the
// user's cache directory, where they are kept under the machine's identity. Rank 0 uses it when a
// communicator is created, and so do the tools. It reads files and blocks while it does; any thread
// may call it.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "comm/implementations.hpp"
#include "plan/calibration.hpp"

#include <optional>
#include <string>

namespace qccl {

// ---- Identity of the machine

// Returns the model name that the processor gives.
std::string processor_name();

// Returns for example "AMD EPYC 9B14, 8 cores, ports of 25 and 200 Gbit/s": what decides how fast a
// machine computes and sends, and does not change at a restart. Machines of one kind have one
// identity.
std::string machine_identity();

// Returns the path of the file with the machine's measured figures in the user's cache directory
// (XDG_CACHE_HOME, or .cache in HOME). The file need not exist. Empty if the user has no such
// directory.
std::string calibration_path();

// ---- Calibration files

inline constexpr const char *calibration_off = "off"; // value of QCCL_CALIBRATION

// Returns invalid_argument, or system_error if reading fails. The error's text does not name the
// path.
Result<CalibrationFile> read_calibration(const std::string &path);

// See TopologySource::find_calibration.
Result<FoundCalibration> find_calibration(const Settings &settings);

} // namespace qccl
