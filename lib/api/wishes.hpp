// What one rank wants of a communicator. Knows no environment.
#pragma once

#include "base/result.hpp"
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
    std::optional<std::chrono::nanoseconds> timeout, peer_timeout;
    qcclIdle_t idle{};
    qcclLog_t log{};
};
Result<CommWishes> take_wishes(const qcclConfig_t *config);

} // namespace qccl
