// Implements the checks of settings against each other, the file system and the job.
#include "api/setting_checks.hpp"

#include "api/call_audit.hpp"
#include "plan/planner.hpp"
#include "transport/transport.hpp"

#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

namespace {

// A few wire slots of the smallest segment for each of a few ranks. Calls that need more get memory
// of their own, which takes time.
constexpr size_t smallest_arena = size_t{64} << 10;

Done check_arena(uint64_t bytes) {
    if (bytes < smallest_arena)
        return Error::make(Code::invalid_argument,
                           "QCCL_ARENA: %" PRIu64 " bytes are less than the smallest arena of %zu",
                           bytes, smallest_arena);
    if (bytes > most_outbox_bytes)
        return Error::make(Code::invalid_argument,
                           "QCCL_ARENA: %" PRIu64 " bytes are more than the %" PRIu64
                           " that can be addressed",
                           bytes, most_outbox_bytes);
    return {};
}

Done check_record_folder(const std::string &folder) {
    const auto in_vain = [&](const char *why) {
        return Error::make(Code::invalid_argument, "QCCL_RECORD: %.200s: %s", folder.c_str(), why);
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
            return Error::make(Code::invalid_argument, "%.200s: %.260s", describe(rule).c_str(),
                               named.error().text);
        if (rule.selector.nodes == NumberRange()) return {};
        return Error::make(Code::invalid_argument,
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
    const Done is_ours = policy.plan ? check_job(*policy.plan, policy.ranks, policy.nodes) : Done();
    if (is_ours) return {};
    const char *const path = env_settings.settings.plan_file.c_str();
    if (!env_settings.is_child)
        return Error::make(Code::invalid_argument, "QCCL_PLAN_FILE: %.160s: %.300s", path,
                           is_ours.error().text);
    if (log) log->info("QCCL_PLAN_FILE: %.160s is not used: %.300s", path, is_ours.error().text);
    policy.plan.reset();
    return {};
}

} // namespace qccl
