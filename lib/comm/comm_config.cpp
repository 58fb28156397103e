// Parses a communicator's config, reads the environment's settings and its plan file, and checks
// settings against each other, the file system and the job.
#include "comm/comm_config.hpp"

#include "base/settings.hpp"
#include "base/system.hpp"
#include "base/text.hpp"
#include "comm/boundary.hpp"
#include "comm/call_reports.hpp"
#include "device/device.hpp"
#include "memory/segment.hpp"
#include "plan/planner.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

static Result<bool> take_flag(const char *field, int32_t value) {
    if (value == 0 || value == 1) return value == 1;
    return invalid_argument("config: %s is %d; possible are 0 and 1", field, value)
        .compared(1, value);
}

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
        if (!codec) return invalid_argument("config: %s", codec.error().text);
        if (const Done done = check_for_reductions(*codec); !done)
            return invalid_argument("config: %s", done.error().text);
        comm_config.codec = *codec;
    }
    if (given.algorithm) {
        QCCL_TRY(comm_config.algorithm, parse_algorithm(given.algorithm, "config: algorithm"));
    }
    QCCL_TRY(comm_config.timeout, take_timeout("timeout", given.timeout));
    QCCL_TRY(comm_config.peer_timeout, take_timeout("peer_timeout", given.peer_timeout));
    if (comm_config.peer_timeout == std::chrono::nanoseconds(0))
        return invalid_argument(
            "config: peer_timeout is %g; the dead must be told from the living, so "
            "it has to be above 0",
            given.peer_timeout);
    QCCL_TRY(comm_config.reproducible, take_flag("reproducible", given.reproducible));
    QCCL_TRY(comm_config.nonblocking, take_flag("nonblocking", given.nonblocking));
    if (given.fusion != 0)
        comm_config.fusion_bytes = static_cast<uint64_t>(std::max<int64_t>(given.fusion, 0));
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

// ---- Checks

namespace {

// A few wire slots of the smallest segment for each of a few ranks. Calls that need more get memory
// of their own, which takes time.
constexpr size_t smallest_arena = size_t{64} << 10;

Done check_arena(uint64_t bytes) {
    if (bytes < smallest_arena)
        return invalid_argument("QCCL_ARENA: %" PRIu64
                                " bytes are less than the smallest arena of %zu",
                                bytes, smallest_arena);
    if (bytes > most_outbox_bytes)
        return invalid_argument("QCCL_ARENA: %" PRIu64 " bytes are more than the %" PRIu64
                                " that can be addressed",
                                bytes, most_outbox_bytes);
    return {};
}

Done check_record_folder(const std::string &folder) {
    const auto in_vain = [&](const char *why) {
        return invalid_argument("QCCL_RECORD: %.200s: %s", folder.c_str(), why);
    };
    struct stat found {};
    if (stat(folder.c_str(), &found) != 0) return in_vain(std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return in_vain(std::strerror(ENOTDIR));
    if (access(folder.c_str(), W_OK | X_OK) != 0) return in_vain(std::strerror(errno));
    return {};
}

// Refuses algorithms whose sums depend on where the ranks are, and conditions on it, in the config
// and in all rules.
Done check_reproducible(const CommConfig &comm_config, const EnvRules &rules) {
    QCCL_TRY(check_reproducible(comm_config.algorithm, true));
    return for_each_rule(rules, [](const Rule &rule) -> Done {
        const Done named = check_reproducible(rule.algorithm.value_or(Algorithm()), true);
        if (!named)
            return invalid_argument("%.200s: %.260s", describe(rule).c_str(), named.error().text);
        if (rule.selector.hosts == NumberRange()) return {};
        return invalid_argument(
            "%.200s: the number of nodes depends on where the ranks are, which a "
            "reproducible communicator rules out",
            describe(rule).c_str());
    });
}

} // namespace

Done check_settings(const CommConfig &comm_config, const EnvSettings &env_settings) {
    const Settings &settings = env_settings.settings;
    QCCL_TRY(check_arena(settings.arena_bytes.value_or(smallest_arena)));
    const auto &record = settings.record;
    if (record && *record != record_off) QCCL_TRY(check_record_folder(*record));
    QCCL_TRY(check_audit(settings));
    if (is_reproducible(comm_config, settings))
        return check_reproducible(comm_config, env_settings.rules);
    return {};
}

Done fit_plan(CallPolicy &policy, const EnvSettings &env_settings, const Log *log) {
    const Done is_ours = policy.plan ? check_job(*policy.plan, policy.ranks, policy.hosts) : Done();
    if (is_ours) return {};
    const char *const path = env_settings.settings.plan_file.c_str();
    if (!env_settings.is_child)
        return invalid_argument("QCCL_PLAN_FILE: %.160s: %.300s", path, is_ours.error().text);
    if (log) log->info("QCCL_PLAN_FILE: %.160s is not used: %.300s", path, is_ours.error().text);
    policy.plan.reset();
    return {};
}

} // namespace qccl
