// What a config and the environment say.
#include "api/wishes.hpp"

#include "api/config.hpp"
#include "base/regular_file.hpp"
#include "device/loader.hpp"

#include <string>
#include <string_view>

#include <unistd.h>

namespace qccl {

Result<CommWishes> take_wishes(const qcclConfig_t *config) {
    QCCL_TRY(const qcclConfig_t given, take_config(config));
    CommWishes wishes;
    wishes.idle = given.idle;
    wishes.log = given.log;
    if (given.device) {
        QCCL_TRY(check_device("config: device", given.device));
        wishes.device = given.device;
    }
    if (given.codec) {
        const auto codec = parse_codec(given.codec);
        if (!codec)
            return Error::make(Code::invalid_argument, "config: %.200s", codec.error().text);
        wishes.codec = *codec;
    }
    if (given.algorithm) {
        QCCL_TRY(wishes.algorithm, parse_algorithm(given.algorithm, "config: algorithm"));
    }
    QCCL_TRY(wishes.timeout, take_timeout("timeout", given.timeout));
    QCCL_TRY(wishes.peer_timeout, take_timeout("peer_timeout", given.peer_timeout));
    if (wishes.peer_timeout == std::chrono::nanoseconds(0))
        return Error::make(Code::invalid_argument,
                           "config: peer_timeout is %g; the dead must be told from the living, so "
                           "it has to be above 0",
                           given.peer_timeout);
    if (given.reproducible != 0 && given.reproducible != 1)
        return Error::make(Code::invalid_argument,
                           "config: reproducible is %d; possible are 0 and 1", given.reproducible)
            .compared(1, given.reproducible);
    wishes.reproducible = given.reproducible == 1;
    if (given.name) wishes.name = given.name;
    return wishes;
}

Surroundings read_surroundings() {
    Surroundings read;
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

CallPolicy policy_of(const CommWishes &wishes, const Surroundings &surroundings) {
    CallPolicy policy = policy_of(surroundings.rules, surroundings.settings, wishes.name);
    policy.codec = wishes.codec;
    policy.algorithm = wishes.algorithm;
    return policy;
}

} // namespace qccl
