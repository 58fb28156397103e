// Reads calibration files and compares them with this machine's identity.
#include "topology/calibration_source.hpp"

#include "base/regular_file.hpp"
#include "topology/machine_identity.hpp"

#include <utility>

#include <unistd.h>

namespace qccl {

Result<CalibrationFile> read_calibration(const std::string &path) {
    QCCL_TRY(const std::string text, read_regular_file(path, most_calibration_bytes));
    return parse_calibration(text);
}

static FoundCalibration used(CalibrationFile file, const std::string &path) {
    FoundCalibration found{.file = std::move(file), .path = path, .warning = ""};
    if (const size_t jobs = found.file->jobs_of_other_models)
        found.warning = path + " says nothing of " + std::to_string(jobs) +
                        (jobs == 1 ? " job" : " jobs") +
                        " any more, measured by a library that counted otherwise: calibrate again";
    return found;
}

// Reads the file in the cache directory. The user has not asked for it, so a bad file is only a
// warning.
static FoundCalibration cached_calibration() {
    FoundCalibration found;
    const std::string path = calibration_path();
    if (path.empty() || access(path.c_str(), F_OK) != 0) return found;
    auto file = read_calibration(path);
    if (!file)
        found.warning = path + " is not used: " + file.error().text;
    else if (file->machine == machine_identity()) // otherwise two names have one hash
        found = used(std::move(*file), path);
    return found;
}

Result<FoundCalibration> find_calibration(const Settings &settings) {
    if (!settings.calibration) return cached_calibration();
    const std::string &path = *settings.calibration;
    FoundCalibration found;
    if (path == calibration_off) return found;
    auto file = read_calibration(path);
    if (!file)
        return Error::make(Code::invalid_argument, "QCCL_CALIBRATION: %.160s: %.300s", path.c_str(),
                           file.error().text);
    if (const std::string machine = machine_identity(); file->machine != machine)
        found.warning = "QCCL_CALIBRATION: " + path +
                        " is not used: it was measured on another machine (" + file->machine +
                        "), and this is " + machine;
    else
        found = used(std::move(*file), path);
    return found;
}

} // namespace qccl
