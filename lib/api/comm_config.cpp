// Parses a communicator's config, and reads the environment's settings and its plan file.
#include "api/comm_config.hpp"

#include "api/config.hpp"
#include "base/regular_file.hpp"
#include "device/loader.hpp"

#include <string>
#include <string_view>

#include <unistd.h>

namespace qccl {

Result<CommConfig> parse_config(const qcclConfig_t *config) {
    QCCL_TRY(const qcclConfig_t given, take_config(config));
    CommConfig comm_config;
    comm_config.idle = given.idle;
    comm_config.log = given.log;
    if (given.device) {
        QCCL_TRY(check_device("config: device", given.device));
        comm_config.device = given.device;
    }
    if (given.codec) {
        const auto codec = parse_codec(given.codec);
        if (!codec)
            return Error::make(Code::invalid_argument, "config: %.200s", codec.error().text);
        comm_config.codec = *codec;
    }
    if (given.algorithm) {
        QCCL_TRY(comm_config.algorithm, parse_algorithm(given.algorithm, "config: algorithm"));
    }
    QCCL_TRY(comm_config.timeout, take_timeout("timeout", given.timeout));
    QCCL_TRY(comm_config.peer_timeout, take_timeout("peer_timeout", given.peer_timeout));
    if (comm_config.peer_timeout == std::chrono::nanoseconds(0))
        return Error::make(Code::invalid_argument,
                           "config: peer_timeout is %g; the dead must be told from the living, so "
                           "it has to be above 0",
                           given.peer_timeout);
    if (given.reproducible != 0 && given.reproducible != 1)
        return Error::make(Code::invalid_argument,
                           "config: reproducible is %d; possible are 0 and 1", given.reproducible)
            .compared(1, given.reproducible);
    comm_config.reproducible = given.reproducible == 1;
    if (given.name) comm_config.name = given.name;
    return comm_config;
}

EnvSettings read_env_settings() {
    EnvSettings read;
    if (auto settings = read_settings(environ)) {
        read.settings = std::move(*settings);
    } else {
        static constexpr const char *nothing[] = {nullptr};
        read.settings = *read_settings(nothing);
        read.readable = settings.error();
    }
    if (auto rules = parse_env_rules(read.settings, [](const std::string &path) {
            return read_regular_file(path, most_plan_bytes);
        }))
        read.rules = std::move(*rules);
    else
        read.rules_readable = rules.error();
    return read;
}

CallPolicy policy_of(const CommConfig &comm_config, const EnvSettings &env_settings) {
    CallPolicy policy = policy_of(env_settings.rules, env_settings.settings, comm_config.name);
    policy.codec = comm_config.codec;
    policy.algorithm = comm_config.algorithm;
    return policy;
}

} // namespace qccl
