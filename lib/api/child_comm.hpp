// Creates a communicator of some ranks of another one, for qcclCommSplit and qcclCommShrink. The
// ranks meet over the parent's SurvivorExchange, so they need no unique id, no port and no
// rendezvous server, however the parent was created.
#pragma once

#include "api/creation.hpp"
#include "transport/survivor_exchange.hpp"

namespace qccl {

// Parses `config`; NULL gives the parent's config.
Result<CommConfig> parse_config(const Comm &parent, const qcclConfig_t *config);
// How long the ranks wait for each other: the config's timeout, or else the parent's.
std::chrono::nanoseconds timeout_of(const Comm &parent, const CommConfig &comm_config);

// Creates a communicator of the group's members, numbered in the group's order; this rank is one of
// them. Requires the parent's entry guard, and blocks until the members have joined. `how` is the
// word that traces show: split or shrink.
Result<std::shared_ptr<Comm>> create_child(Comm &parent, MemberGroup &group,
                                           const CommConfig &comm_config, const char *how);

} // namespace qccl
