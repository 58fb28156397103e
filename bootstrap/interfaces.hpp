// Chooses the addresses of this machine at which the ranks meet, by the names of its network
// interfaces. The bootstrap and communicator creation use it. It reads the list of interfaces; any
// thread may call it.
#pragma once

#include "bootstrap/endpoint.hpp"

namespace qccl {

// Returns addresses of interfaces that are up, best first. `wanted` is a list, separated by commas,
// of interface names, beginnings of such names, and addresses. With a leading '^' it lists what is
// not to be used; an entry with a leading '=' stands for that exact name only. Empty: all
// interfaces but the loopback, which is used only if there is no other. Link-local addresses are
// used if their interface is listed or if there is no other address. Errors: invalid_argument,
// whose text names the setting QCCL_SOCKET_IFNAME; system_error.
Result<std::vector<Endpoint>> choose_endpoints(const std::string &wanted);

// Returns the names of the interfaces that have one of these addresses, each once.
std::vector<std::string> interfaces_with(const std::vector<Endpoint> &endpoints);

// Returns the endpoints in the form in which this machine can reach them: a link-local address
// without a scope appears once for each interface that may lead to its network.
std::vector<Endpoint> reachable(const std::vector<Endpoint> &endpoints);

} // namespace qccl
