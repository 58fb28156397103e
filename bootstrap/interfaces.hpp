// Which of this machine's addresses the ranks shall meet at, by the names of its interfaces. Knows
// no ports and no connections.
#pragma once

#include "bootstrap/endpoint.hpp"

namespace qccl {

// Addresses of interfaces that are up, best first. `wanted` is a list, separated by commas, of
// interfaces' names, of what such names begin with, and of addresses; behind a leading '^', of
// those that are not to be used; behind '=', of names that stand for themselves alone. Empty: all
// but the loopback, which is left where there is nothing else. Link-local addresses are taken where
// their interface is asked for, or nothing else is there. Errors name the setting that `wanted` is.
Result<std::vector<Endpoint>> choose_endpoints(const std::string &wanted);

// Names of the interfaces that have one of these addresses, each once.
std::vector<std::string> interfaces_with(const std::vector<Endpoint> &endpoints);

// The endpoints as this machine can reach them: one that is link-local to a network, by each of the
// interfaces that may lead there.
std::vector<Endpoint> reachable(const std::vector<Endpoint> &endpoints);

} // namespace qccl
