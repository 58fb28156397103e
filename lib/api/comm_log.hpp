// Creates the log of a communicator. Called by creation, and by qcclCommInit functions for their
// rendezvous.
#pragma once

#include "api/comm_config.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"

#include <memory>

namespace qccl {

// Lines go to the config's callback, if there is one, and to the file of QCCL_DEBUG_FILE. With a
// callback, stderr is left out. The log keeps its copy of the callback as long as it lives.
Result<std::shared_ptr<const Log>> create_log(const CommConfig &comm_config,
                                              const Settings &settings, uint32_t rank);

} // namespace qccl
