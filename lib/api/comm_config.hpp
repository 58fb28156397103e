// One rank's config of a communicator, and the settings of the environment that hold beside it.
// Used where communicators are created; nothing here waits for other ranks.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/calibration.hpp"
#include "plan/call_policy.hpp"

#include <qccl/qccl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace qccl {

// A config, checked as far as one rank can check it alone. It holds copies of the strings.
struct CommConfig {
    std::string name;
    std::string device = "host";
    std::optional<Codec> codec;
    Algorithm algorithm;
    bool reproducible = false;
    std::optional<std::chrono::nanoseconds> timeout, peer_timeout;
    qcclIdle_t idle{};
    qcclLog_t log{};
};
// NULL gives the defaults. An error (invalid_argument) names the field.
Result<CommConfig> parse_config(const qcclConfig_t *config);

// The environment's settings. Every rank must learn of a setting that cannot be read, so `settings`
// then holds the built-in values, with which this rank reaches the others.
struct EnvSettings {
    Settings settings;
    EnvRules rules{};
    Done readable{};
    Done rules_readable{}; // of the rules in settings and plan file; `rules` is empty on error
    bool is_child = false; // split or shrink makes the communicator
    std::shared_ptr<const Measured> measured{}; // the parent's; null: nothing was measured
};
// Reads the environment, and the file that QCCL_PLAN_FILE names.
EnvSettings read_env_settings();

// How the communicator and the environment choose for its calls. The caller adds the numbers of
// ranks and nodes.
CallPolicy policy_of(const CommConfig &comm_config, const EnvSettings &env_settings);
// Whether the config or the environment asks for reproducible results.
inline bool is_reproducible(const CommConfig &comm_config, const Settings &settings) {
    return comm_config.reproducible || settings.reproducible;
}

} // namespace qccl
