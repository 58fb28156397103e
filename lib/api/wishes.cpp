// What a config and the environment say.
#include "api/wishes.hpp"

#include "api/config.hpp"
#include "api/creation.hpp"
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

static Result<Settings> read_all_settings() {
    QCCL_TRY(Settings settings, read_settings(environ));
    if (const auto codec = parse_codec(settings.codec); !codec)
        return Error::make(Code::invalid_argument, "QCCL_CODEC: %.200s", codec.error().text);
    if (settings.algorithm) QCCL_TRY(parse_algorithm(*settings.algorithm, "QCCL_ALGO", {"auto"}));
    return settings;
}

Surroundings read_surroundings() {
    if (auto settings = read_all_settings())
        return {std::move(*settings), {}};
    else {
        static constexpr const char *nothing[] = {nullptr};
        return {*read_settings(nothing), settings.error()};
    }
}

CodecPolicy policy_of(const CommWishes &wishes, const Settings &settings) {
    CodecPolicy policy{.of_communicator = wishes.codec, .of_environment = {}};
    const auto codec = parse_codec(settings.codec);
    if (codec && !codec->is_lossless()) policy.of_environment = *codec;
    return policy;
}

Algorithm algorithm_of(const CommWishes &wishes, const Settings &settings) {
    if (wishes.algorithm || !settings.algorithm) return wishes.algorithm;
    const auto algorithm = parse_algorithm(*settings.algorithm);
    return algorithm ? *algorithm : Algorithm();
}

} // namespace qccl
