// What one rank wants of a communicator, and what of it holds beside the settings.
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

// A config that has been checked as far as one rank can alone; holds copies of its strings.
struct CommWishes {
    std::string name;
    std::string device = "host";
    std::optional<Codec> codec;
    Algorithm algorithm;
    bool reproducible = false;
    std::optional<std::chrono::nanoseconds> timeout, peer_timeout;
    qcclIdle_t idle{};
    qcclLog_t log{};
};
Result<CommWishes> take_wishes(const qcclConfig_t *config);

// What the environment says. A setting that cannot be read is an error that every rank shall hear
// of: then `settings` holds the built-in values, with which the others can be reached.
struct Surroundings {
    Settings settings;
    EnvRules rules{};
    Done readable{};
    Done rules_readable{}; // likewise, of the settings' items and the plan file: then `rules` is
                           // empty
    bool is_offspring = false;                  // of a communicator that is split or shrunk
    std::shared_ptr<const Measured> measured{}; // of an offspring's parent; null: nothing
};
// Reads the file that QCCL_PLAN_FILE names.
Surroundings read_surroundings();

// What the communicator and the environment want of its calls, but for its size.
CallPolicy policy_of(const CommWishes &wishes, const Surroundings &surroundings);
// As either wants it.
inline bool is_reproducible(const CommWishes &wishes, const Settings &settings) {
    return wishes.reproducible || settings.reproducible;
}

} // namespace qccl
