// Reads the rules with the library's own parsers, prints them, and makes a call policy of them.
#include "perf/policy_info.hpp"

#include "base/regular_file.hpp"

#include <cstdio>

namespace qccl::perf {

Result<EnvRules> read_env_rules(const Settings &settings) {
    return parse_env_rules(
        settings, [](const std::string &path) { return read_regular_file(path, most_plan_bytes); });
}

static void print_items(const Rules &rules) {
    for (const Rule &rule : rules.all()) {
        if (rules.all().size() == 1 && rule.selector.is_unconditional()) return;
        const std::string conditions = spec(rule.selector);
        std::printf("  %s, item %u: %s for %s\n", rule.source->setting, rule.number,
                    rule.codec        ? spec(*rule.codec).c_str()
                    : *rule.algorithm ? spec(*rule.algorithm).c_str()
                                      : "auto",
                    conditions.empty() ? "all calls" : conditions.c_str());
    }
}

void print_rules(const EnvRules &rules) {
    print_items(rules.codecs);
    print_items(rules.algorithms);
    if (!rules.plan) return;
    std::string job;
    if (rules.plan->ranks != 0) job += " ranks=" + std::to_string(rules.plan->ranks);
    if (rules.plan->nodes != 0) job += " nodes=" + std::to_string(rules.plan->nodes);
    const size_t lines = rules.plan->rules.all().size();
    std::printf("  QCCL_PLAN_FILE: %zu %s%s%s\n", lines, lines == 1 ? "rule" : "rules",
                job.empty() ? "" : " for", job.c_str());
}

Result<CallPolicy> policy_here(const Settings &settings, uint32_t ranks, uint32_t nodes,
                               const std::string &communicator) {
    QCCL_TRY(const EnvRules rules, read_env_rules(settings));
    CallPolicy policy = policy_of(rules, settings, communicator);
    policy.ranks = ranks;
    policy.nodes = nodes;
    if (!policy.plan) return policy;
    if (const Done is_ours = check_job(*policy.plan, ranks, nodes); !is_ours)
        return Error::make(Code::invalid_argument, "QCCL_PLAN_FILE: %.160s: %.300s",
                           settings.plan_file.c_str(), is_ours.error().text);
    return policy;
}

} // namespace qccl::perf
