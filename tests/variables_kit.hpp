// What the tests of ranks that meet by a launcher's variables share: the variables, and a port.
#pragma once

#include "rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"

#include <string>

namespace kit {

// One that nobody listens on. Whoever takes it in the meantime makes the test fail by name.
inline uint16_t free_port() {
    std::vector<Endpoint> here{*parse_address("127.0.0.1")};
    const auto listeners = open_listeners(here);
    CHECK_OK(listeners);
    return here.front().port;
}

// "RANK=1", ...: all that a process finds in its environment.
inline Result<std::unique_ptr<Bootstrap>> join_variables(const std::vector<std::string> &variables,
                                                         const EnvironmentOptions &some) {
    std::vector<const char *> environment;
    for (const std::string &variable : variables) environment.push_back(variable.c_str());
    environment.push_back(nullptr);
    return join_environment(environment.data(), some);
}

} // namespace kit
