// Makes a communicator of ranks that have found each other: opens the rank's log and device,
// reads settings, compares what must agree, and creates a transport. Every rank learns of another
// rank's failure. The qcclCommInit functions call create_comm, and create_log for their rendezvous.
// create_comm blocks until all ranks have come. create_log and open_local_resources do not wait for
// other ranks.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "comm/comm.hpp"
#include "comm/comm_config.hpp"
#include "comm/implementations.hpp"
#include "device/device.hpp"
#include "net/bootstrap.hpp"
#include "plan/calibration.hpp"

#include <memory>
#include <optional>
#include <string>

namespace qccl {

// ---- The log

// Lines go to the config's callback, if there is one, and to the file of QCCL_DEBUG_FILE. With a
// callback, stderr is left out. The log keeps its copy of the callback as long as it lives.
Result<std::shared_ptr<const Log>> create_log(const CommConfig &comm_config,
                                              const Settings &settings, uint32_t rank);

// ---- What a rank makes before it meets the others

struct LocalResources {
    std::shared_ptr<const Log> log;
    Device device;
    std::string host;                           // identity of this rank's host
    std::optional<CalibrationFile> calibration; // that rank 0 has found
};

// An error is this rank's alone; the caller tells the other ranks.
Result<LocalResources> open_local_resources(const Implementations &implementations, uint32_t rank,
                                            const CommConfig &comm_config,
                                            const EnvSettings &env_settings);

// ---- Creation by all ranks

// All ranks call it together, and an error is returned on all of them. `siblings`: of
// qcclCommInitAll, else null. `origin`: what a split or shrink starts from. `owner`: of a channel,
// the communicator whose messages it carries, which outlives the channel; else null.
Result<std::shared_ptr<Comm>>
create_comm(const Implementations &implementations, Bootstrap &bootstrap, Reach reach,
            const CommConfig &comm_config, const EnvSettings &env_settings,
            const std::shared_ptr<SiblingComms> &siblings, const TraceOrigin &origin = {},
            MessageOwner *owner = nullptr);

} // namespace qccl
