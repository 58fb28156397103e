#include "perf/run_description.hpp"

#include "base/settings.hpp"
#include "perf/version_line.hpp"

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

static std::string date_and_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S%z", &local);
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
            {"date", date_and_time()},
            {"settings", settings_json()}};
}

} // namespace qccl::perf
