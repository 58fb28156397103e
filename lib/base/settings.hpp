// The table of all settings, and the values that an environment gives them. The caller passes the
// environment. Names of codecs, algorithms, SIMD tiers and interfaces are kept as text; the code
// that uses them checks them. Pure; any thread may call.
#pragma once

#include "base/inject.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

enum class Origin : uint8_t { built_in, environment };

// The text of a setting and where it came from; one for each row of the table, in its order.
struct SettingValue {
    std::string text;
    Origin origin = Origin::built_in;
};

// An empty field stands for "auto": the code that reads the setting chooses.
struct Settings {
    std::string codec;                    // a list of items, each a codec for some calls
    std::optional<std::string> algorithm; // a list of items, each an algorithm for some calls
    std::string plan_file;
    LogLevel debug = LogLevel::warn;
    std::string debug_file;
    std::optional<std::string> record; // a folder, or off
    std::string trace, record_calls;   // patterns of paths; empty: none
    std::string audit;                 // a list of codecs; empty: none
    std::string audit_file;            // a pattern of a path; empty: none
    std::chrono::nanoseconds peer_timeout{};
    std::chrono::nanoseconds timeout{}; // zero: for ever
    bool checksum = false;
    bool reproducible = false;
    std::optional<std::string> tier;
    std::optional<uint64_t> segment_bytes;
    std::optional<uint64_t> arena_bytes;
    std::optional<uint64_t> lanes;
    std::optional<uint64_t> oneshot_max_bytes;
    std::optional<std::string> calibration; // a path, or off
    std::optional<std::chrono::nanoseconds> link_latency;
    std::optional<uint64_t> link_rate; // bytes a second
    std::optional<uint64_t> rack_rate; // bytes a second
    std::optional<std::string> socket_interface;
    std::optional<std::string> host_id;
    std::optional<std::string> node;
    std::optional<std::string> rack;
    std::optional<uint64_t> port;
    std::string secret_file;
    std::optional<std::string> ucx_transports;
    std::optional<std::string> ucx_devices;
    std::optional<std::chrono::nanoseconds> spin;
    std::optional<uint64_t> progress_cpu;
    std::vector<InjectRule> inject;

    // Returns the text of the setting `name`; empty if there is no such setting.
    std::string_view as_written(std::string_view name) const;
    // Whether the environment gave the setting `name` its value.
    bool is_set(std::string_view name) const;

    std::vector<SettingValue> values;
    std::vector<std::string> warnings; // a sentence for each QCCL_ variable that is no setting
};

struct SettingRow {
    const char *name;
    const char *built_in;
    const char *type; // finishes the sentence "expected ..."
    const char *help;
    Done (*store)(const SettingRow &row, std::string_view text, Settings &settings);
};

std::span<const SettingRow> settings_table();

// Reads all settings. `environment` holds "NAME=value" texts and a null pointer at its end, like
// environ. A variable that is set but empty counts as not set. Returns invalid_argument for a value
// that cannot be read.
Result<Settings> read_settings(const char *const *environment);

} // namespace qccl
