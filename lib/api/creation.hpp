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

// `family`: of qcclCommInitAll, else null.
Result<std::shared_ptr<Comm>> create_comm(Bootstrap &bootstrap, Reach reach,
                                          const CommWishes &wishes,
                                          const Surroundings &surroundings,
                                          const std::shared_ptr<Family> &family,
                                          const TraceOrigin &origin = {});

} // namespace qccl
