// Fuzzes base/settings with hostile environments, one variable for each line. If read_settings
// refuses, it names the setting. If it accepts, it shows each value as it was given, and warns of
// every name that is not its own.
#include "base/settings.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace qccl;

static void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static bool is_setting(std::string_view name) {
    if (name == "QCCL_LIBRARY") return true; // the Python package's
    return std::any_of(settings_table().begin(), settings_table().end(),
                       [&](const SettingRow &row) { return name == row.name; });
}

static void check_values(const Settings &settings, const std::vector<std::string> &lines) {
    require(settings.values.size() == settings_table().size(), "a setting without a value");
    for (size_t i = 0; i < settings.values.size(); i++) {
        if (settings.values[i].origin == Origin::built_in) continue;
        const std::string said =
            std::string(settings_table()[i].name) + "=" + settings.values[i].text;
        require(std::find(lines.begin(), lines.end(), said) != lines.end(), "a value nobody gave");
    }
    size_t strangers = 0;
    for (const std::string &line : lines)
        strangers += line.starts_with("QCCL_") && !is_setting(line.substr(0, line.find('=')));
    require(settings.warnings.size() == strangers, "a name without a warning");
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    std::vector<std::string> lines(1);
    for (size_t i = 0; i < bytes; i++)
        if (data[i] == '\n')
            lines.emplace_back();
        else if (data[i] != 0)
            lines.back() += static_cast<char>(data[i]);
    std::vector<const char *> environment;
    for (const std::string &line : lines) environment.push_back(line.c_str());
    environment.push_back(nullptr);

    const auto settings = read_settings(environment.data());
    if (settings) {
        check_values(*settings, lines);
        return 0;
    }
    const std::string_view sentence = settings.error().text;
    require(settings.error().code == Code::invalid_argument, "a refusal of the wrong kind");
    require(is_setting(sentence.substr(0, sentence.find_first_of("=: "))),
            "a refusal without the setting's name");
    return 0;
}
