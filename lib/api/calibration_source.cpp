#include "api/calibration_source.hpp"

#include "api/setting_checks.hpp"
#include "base/regular_file.hpp"
#include "topology/machine_identity.hpp"

#include <unistd.h>

namespace qccl {

static Result<CalibrationFile> read_calibration(const std::string &path) {
    QCCL_TRY(const std::string text, read_regular_file(path, most_calibration_bytes));
    return parse_calibration(text);
}

// Of a file that is there without having been asked for.
static std::optional<CalibrationFile> cached_calibration(const Log &log) {
    const std::string path = calibration_path();
    if (path.empty() || access(path.c_str(), F_OK) != 0) return std::nullopt;
    auto file = read_calibration(path);
    if (!file) {
        log.warn("%.160s is not used: %.300s", path.c_str(), file.error().text);
        return std::nullopt;
    }
    // Its name is a hash, so that another machine's cannot be here but by chance.
    if (file->machine != machine_identity()) return std::nullopt;
    log.info("calibration from %.160s", path.c_str());
    return std::move(*file);
}

Result<std::optional<CalibrationFile>> find_calibration(const Settings &settings, const Log &log) {
    if (!settings.calibration) return cached_calibration(log);
    const std::string &path = *settings.calibration;
    if (path == calibration_off) return std::optional<CalibrationFile>();
    auto file = read_calibration(path);
    if (!file)
        return Error::make(Code::invalid_argument, "QCCL_CALIBRATION: %.160s: %.300s", path.c_str(),
                           file.error().text);
    if (const std::string machine = machine_identity(); file->machine != machine) {
        log.warn(
            "QCCL_CALIBRATION: %.120s is not used: it was measured on another machine (%.120s), "
            "and this is %.120s",
            path.c_str(), file->machine.c_str(), machine.c_str());
        return std::optional<CalibrationFile>();
    }
    log.info("calibration from %.160s", path.c_str());
    return std::optional(std::move(*file));
}

} // namespace qccl
