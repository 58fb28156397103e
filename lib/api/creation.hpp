// From ranks that have found each other to communicators: settings are read, what must agree is
// compared, and a transport is made. Every rank learns of another's failure.
#pragma once

#include "api/comm.hpp"
#include "api/comm_log.hpp"
#include "api/wishes.hpp"
#include "base/settings.hpp"
#include "bootstrap/bootstrap.hpp"

#include <memory>

namespace qccl {

// What the environment says. A setting that cannot be read is an error that every rank shall hear
// of: then `settings` holds the built-in values, with which the others can be reached.
struct Surroundings {
    Settings settings;
    Done readable;
};
Surroundings read_surroundings();

// `family`: of qcclCommInitAll, else null.
Result<std::shared_ptr<Comm>> create_comm(Bootstrap &bootstrap, Reach reach,
                                          const CommWishes &wishes,
                                          const Surroundings &surroundings,
                                          const std::shared_ptr<Family> &family,
                                          const TraceOrigin &origin = {});

} // namespace qccl
