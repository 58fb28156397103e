// What one rank wants of a communicator, and what of it holds beside the settings.
#pragma once

#include "api/codec_policy.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"

#include <qccl/qccl.h>

#include <chrono>
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

// The communicator's codec, and that of QCCL_CODEC where it loses anything.
CodecPolicy policy_of(const CommWishes &wishes, const Settings &settings);
// As either wants it.
inline bool is_reproducible(const CommWishes &wishes, const Settings &settings) {
    return wishes.reproducible || settings.reproducible;
}
// The communicator's algorithm, else that of QCCL_ALGO, else none.
Algorithm algorithm_of(const CommWishes &wishes, const Settings &settings);

} // namespace qccl
