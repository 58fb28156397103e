// Creation of a communicator by split, by shrink and for a channel: the ranks meet over the
// parent's SurvivorExchange, so they need no unique id, no port and no rendezvous server, however
// the parent was created. create_child blocks until all members have come; the other functions do
// not.
#pragma once

#include "base/result.hpp"
#include "comm/comm.hpp"
#include "comm/comm_config.hpp"
#include "fault/survivor_exchange.hpp"

#include <chrono>
#include <memory>

namespace qccl {

// Parses `config`; NULL gives the parent's config.
Result<CommConfig> parse_config(const Comm &parent, const qcclConfig_t *config);
// How long the ranks wait for each other: the config's timeout, or else the parent's.
std::chrono::nanoseconds timeout_of(const Comm &parent, const CommConfig &comm_config);

// What traces and audits show of a communicator that is made from the parent. `how`: the word for
// the way in which it is made.
TraceOrigin origin_of_child(const Comm &parent, const char *how);

// As CreateChild says (comm.hpp).
Result<std::shared_ptr<Comm>> create_child(Comm &parent, MemberGroup &group,
                                           const CommConfig &comm_config, EnvSettings env_settings,
                                           const ChildOptions &options);

} // namespace qccl
