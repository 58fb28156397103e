// Puts the processor, the cores and the rates of the ports into one name, reads calibration files
// and compares them with that name.
#include "topology/sources/calibration_source.hpp"

#include "base/system.hpp"
#include "base/text.hpp"
#include "topology/sources/machine_sources.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <utility>

#include <sys/sysinfo.h>
#include <unistd.h>

namespace qccl {

// ---- Identity of the machine

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "a processor without a name";
}

// Returns "ports of 25 and 200 Gbit/s", each rate once.
static std::string ports_in_words() {
    constexpr double gigabits = 8; // Gbit/s of one byte per nanosecond
    std::set<double> rates;
    for (const NetworkPort &port : list_ports())
        if (!port.is_loopback && port.bytes_per_ns > 0) rates.insert(port.bytes_per_ns * gigabits);
    if (rates.empty()) return "no port of a known rate";
    std::string text = "ports of ";
    size_t left = rates.size();
    for (const double rate : rates) {
        char number[32];
        std::snprintf(number, sizeof number, "%g", rate);
        text += number;
        left--;
        text += left == 0 ? " Gbit/s" : left == 1 ? " and " : ", ";
    }
    return text;
}

std::string machine_identity() {
    const int cores = get_nprocs_conf();
    return processor_name() + ", " + std::to_string(cores) + (cores == 1 ? " core, " : " cores, ") +
           ports_in_words();
}

std::string calibration_path() {
    const auto value = [](const char *name) -> std::string {
        const char *const text = std::getenv(name);
        return text ? text : "";
    };
    std::string folder = value("XDG_CACHE_HOME");
    if (folder.empty() && !value("HOME").empty()) folder = value("HOME") + "/.cache";
    if (!folder.starts_with('/')) return {}; // XDG forbids relative paths
    char name[64];
    std::snprintf(name, sizeof name, "/qccl/calibration-%016llx",
                  static_cast<unsigned long long>(hash_text(machine_identity())));
    return folder + name;
}

// ---- Calibration files

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
        return invalid_argument("QCCL_CALIBRATION: %.160s: %.300s", path.c_str(),
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
