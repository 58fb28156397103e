// The table of all settings, and the values that an environment gives them. The caller passes the
// environment. Names of codecs, algorithms, SIMD tiers and interfaces are kept as text; the code
// that uses them checks them. Any thread may call; nothing blocks, except that host_identity reads
// a file of /proc.
//
// QCCL_INJECT names faults that a user injects to test recovery on one machine:
// "rank=3,call=100,kill;rank=1,delay=5s". This file parses and matches the rules; the communicator
// applies them to its calls. QCCL_HOSTID replaces the text that identifies this host: ranks with
// equal texts can share memory.
#pragma once

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

// ---- Rules of QCCL_INJECT

enum class Fault : uint8_t { kill, delay, revoke };

struct InjectRule {
    std::optional<uint32_t> rank; // empty: every rank
    std::optional<uint64_t> call; // empty: every call
    Fault fault = Fault::kill;
    std::chrono::nanoseconds delay{}; // of Fault::delay
    std::string text;                 // as the user wrote it

    bool hits(uint32_t at_rank, uint64_t at_call) const {
        return (!rank || *rank == at_rank) && (!call || *call == at_call);
    }
};

// Parses rules separated by ';'. Empty text gives no rules. Returns invalid_argument for a rule
// that cannot be read.
Result<std::vector<InjectRule>> parse_inject(std::string_view text);

// Returns a sentence, with the reason, for each rule that has no effect on any of `ranks` ranks.
std::vector<std::string> futile_rules(std::span<const InjectRule> rules, uint32_t ranks);

// ---- All settings

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
    uint64_t fusion_bytes = 0;              // 0: nothing is fused
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

// ---- Identity of the host

// Returns QCCL_HOSTID if it is set, else the host's name, the network name space and the boot id:
// where any of them differs, ranks may be containers that cannot see each other's memory. Returns
// boot_id's errors.
Result<std::string> host_identity(const Settings &settings);

} // namespace qccl
