// One rank's config of a communicator, and the settings of the environment that hold beside it:
// reads them, checks them, and derives the policy for calls. Creation calls check_settings on every
// rank before the ranks compare their settings, and fit_plan afterwards. Any thread may call
// everything here; nothing waits for other ranks.
#pragma once

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/calibration.hpp"
#include "plan/call_policy.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <qccl/qccl.h>

namespace qccl {

// A config, checked as far as one rank can check it alone. It holds copies of the strings.
struct CommConfig {
    std::string name;
    std::string device = "host";
    std::optional<Codec> codec;
    Algorithm algorithm;
    bool reproducible = false;
    std::optional<uint64_t> fusion_bytes; // 0: nothing is fused
    bool nonblocking = false;             // tasks make and finalize the communicator
    std::optional<std::chrono::nanoseconds> timeout, peer_timeout;
    qcclIdle_t idle{};
    qcclLog_t log{};
};
// NULL gives the defaults. An error (invalid_argument) names the field.
Result<CommConfig> parse_config(const qcclConfig_t *config);

// Returns what begins the lines of the log about a communicator: "gradients: ", or an empty text if
// the communicator has no name.
inline std::string log_prefix(const CommConfig &comm_config) {
    return comm_config.name.empty() ? "" : comm_config.name + ": ";
}

// The environment's settings. Every rank must learn of a setting that cannot be read, so `settings`
// then holds the built-in values, with which this rank reaches the others.
struct EnvSettings {
    Settings settings;
    EnvRules rules{};
    Done readable{};
    Done rules_readable{}; // of the rules in settings and plan file; `rules` is empty on error
    bool is_child = false; // split or shrink makes the communicator
    std::shared_ptr<const Measured> measured{}; // the parent's; null: nothing was measured
    // When the environment was read, with which creation begins.
    TimePoint read_at = std::chrono::steady_clock::now();
};
// Reads the environment, and the file that QCCL_PLAN_FILE names.
EnvSettings read_env_settings();

// How the communicator and the environment choose for its calls. The caller adds the numbers of
// ranks and hosts.
CallPolicy policy_of(const CommConfig &comm_config, const EnvSettings &env_settings);
// Whether the config or the environment asks for reproducible results.
inline bool is_reproducible(const CommConfig &comm_config, const Settings &settings) {
    return comm_config.reproducible || settings.reproducible;
}
// The most bytes of calls that the config or the environment lets run as one; 0: nothing is fused.
inline uint64_t fusion_bytes_of(const CommConfig &comm_config, const Settings &settings) {
    return comm_config.fusion_bytes.value_or(settings.fusion_bytes);
}

// ---- Checks

inline constexpr const char *record_off = "off"; // value of QCCL_RECORD

// An error (invalid_argument) names the setting, its value and what is possible. Reads the file
// system if a setting names a folder.
Done check_settings(const CommConfig &comm_config, const EnvSettings &env_settings);

// Called when the numbers of ranks and hosts are known. Returns invalid_argument, the same on every
// rank, if the plan file is for another job. A communicator made by split or shrink goes on without
// the plan and tells `log` so, unless `log` is null.
Done fit_plan(CallPolicy &policy, const EnvSettings &env_settings, const Log *log);

} // namespace qccl
