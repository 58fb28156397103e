// From ranks that have found each other to communicators: settings are read, what must agree is
// compared, and a transport is made. Every rank learns of another's failure.
#pragma once

#include "api/comm.hpp"
#include "base/settings.hpp"
#include "bootstrap/bootstrap.hpp"

#include <qccl/qccl.h>

#include <memory>
#include <optional>

namespace qccl {

// A config that has been checked as far as one rank can alone; holds copies of its strings.
struct CommWishes {
    std::string name;
    std::optional<Codec> codec;
    Algorithm algorithm;
    std::optional<std::chrono::nanoseconds> timeout, peer_timeout;
    qcclIdle_t idle{};
    qcclLog_t log{};
};
Result<CommWishes> take_wishes(const qcclConfig_t *config);

// What the environment says. A setting that cannot be read is an error that every rank shall hear
// of: then `settings` holds the built-in values, with which the others can be reached.
struct Surroundings {
    Settings settings;
    Done readable;
};
Surroundings read_surroundings();

// As both say; the callback's context is kept as long as the log.
Result<std::shared_ptr<const Log>> create_log(const CommWishes &wishes, const Settings &settings,
                                              uint32_t rank);

enum class Reach : uint8_t { process, host };

// `family`: of qcclCommInitAll, else null.
Result<std::shared_ptr<Comm>> create_comm(Bootstrap &bootstrap, Reach reach,
                                          const CommWishes &wishes,
                                          const Surroundings &surroundings,
                                          const std::shared_ptr<Family> &family);

} // namespace qccl
