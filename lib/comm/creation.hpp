// Turns ranks that have found each other into a communicator: opens the rank's log and device,
// reads settings, compares what must agree, and creates a transport. Every rank learns of another
// rank's failure. The qcclCommInit functions call create_comm, and create_log for their rendezvous.
// Split and shrink call create_child: the ranks meet over the parent's SurvivorExchange, so they
// need no unique id, no port and no rendezvous server, however the parent was created.
// create_comm and create_child block until all ranks have come. create_log and open_local_resources
// do not wait for other ranks.
#pragma once

#include "base/log.hpp"
#include "base/result.hpp"
#include "base/settings.hpp"
#include "comm/bootstrap.hpp"
#include "comm/comm.hpp"
#include "comm/comm_config.hpp"
#include "comm/implementations.hpp"
#include "device/device.hpp"
#include "fault/survivor_exchange.hpp"
#include "plan/calibration.hpp"

#include <functional>
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

// ---- Creation from a parent

// Parses `config`; NULL gives the parent's config.
Result<CommConfig> parse_config(const Comm &parent, const qcclConfig_t *config);
// How long the ranks wait for each other: the config's timeout, or else the parent's.
std::chrono::nanoseconds timeout_of(const Comm &parent, const CommConfig &comm_config);

// What traces and audits show of a communicator that is made from the parent. `how`: the word for
// the way in which it is made.
TraceOrigin origin_of_child(const Comm &parent, const char *how);

struct ChildOptions {
    const char *how;               // the word that traces show: split, shrink or pair
    uint64_t most_arena_bytes = 0; // limits the child's arena; 0: no limit
    MessageOwner *owner = nullptr; // as of create_comm
};

// Creates a communicator of the group's members, numbered in the group's order; this rank is one of
// them. Requires the parent's entry guard, and blocks until the members have joined.
// `env_settings`: as read_env_settings() gives them.
Result<std::shared_ptr<Comm>> create_child(Comm &parent, MemberGroup &group,
                                           const CommConfig &comm_config, EnvSettings env_settings,
                                           const ChildOptions &options);

} // namespace qccl
