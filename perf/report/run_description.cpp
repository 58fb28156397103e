// Implements the description of a run of report.hpp: collects the host, the date and the settings.

#include "base/settings.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/report/report.hpp"

#include <ctime>
#include <nlohmann/json.hpp>

#include <unistd.h>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

static std::string host_name() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return name;
}

std::string local_time(const char *format) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, format, &local);
    return text;
}

static Json settings_json() {
    const auto settings = read_settings(environ);
    if (!settings) return nullptr;
    Json values = Json::object();
    for (size_t row = 0; row < settings_table().size(); row++) {
        const SettingValue &value = settings->values[row];
        const bool is_built_in = value.origin == Origin::built_in;
        values[settings_table()[row].name] = {{"value", value.text},
                                              {"by", is_built_in ? "built in" : "environment"}};
    }
    return values;
}

Json describe_run(const std::vector<std::string> &command_line) {
    return {{"version", version_text()},
            {"command_line", command_line},
            {"host", host_name()},
            {"date", local_time("%Y-%m-%dT%H:%M:%S%z")},
            {"settings", settings_json()}};
}

} // namespace qccl::perf
