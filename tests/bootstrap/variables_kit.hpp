// Helpers of tests in which ranks meet through a launcher's variables: joining by variables, and a
// free port.
#pragma once

#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"

#include <string>

namespace kit {

// Returns a port without a listener. If another process takes it meanwhile, the test fails with an
// error that names the port.
inline uint16_t free_port() {
    std::vector<Endpoint> here{*parse_address("127.0.0.1")};
    const auto listeners = open_listeners(here);
    CHECK_OK(listeners);
    return here.front().port;
}

// Joins with the given variables, such as "RANK=1", as the whole environment.
inline Result<std::unique_ptr<Bootstrap>> join_variables(const std::vector<std::string> &variables,
                                                         const EnvironmentOptions &some) {
    std::vector<const char *> environment;
    for (const std::string &variable : variables) environment.push_back(variable.c_str());
    environment.push_back(nullptr);
    return join_environment(environment.data(), some);
}

} // namespace kit
