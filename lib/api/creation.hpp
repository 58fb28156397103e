// Turns ranks that have found each other into a communicator: reads settings, compares what must
// agree, and creates a transport. Every rank learns of another rank's failure. The qcclCommInit
// functions, split and shrink call it; it blocks until all ranks have come.
#pragma once

#include "api/comm.hpp"
#include "api/comm_log.hpp"
#include "api/comm_config.hpp"
#include "base/settings.hpp"
#include "bootstrap/bootstrap.hpp"

#include <memory>

namespace qccl {

// All ranks call it together, and an error is returned on all of them. `siblings`: of
// qcclCommInitAll, else null. `origin`: what a split or shrink starts from.
Result<std::shared_ptr<Comm>> create_comm(Bootstrap &bootstrap, Reach reach,
                                          const CommConfig &comm_config,
                                          const EnvSettings &env_settings,
                                          const std::shared_ptr<SiblingComms> &siblings,
                                          const TraceOrigin &origin = {});

} // namespace qccl
