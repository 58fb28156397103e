// Implements creation from a parent: a bootstrap over the parent's SurvivorExchange, and what the
// child takes over from its parent.
#include "comm/creation/child_creation.hpp"

#include "comm/creation/creation.hpp"
#include "net/bootstrap.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace qccl {

namespace {

class CommBootstrap final : public Bootstrap {
public:
    CommBootstrap(SurvivorExchange &survivors, MemberGroup &group, uint32_t own_rank)
        : survivors_(survivors), group_(group),
          rank_(static_cast<uint32_t>(
              std::find(group.members.begin(), group.members.end(), own_rank) -
              group.members.begin())) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return static_cast<uint32_t>(group_.members.size()); }
    std::string means() const override { return "the parent communicator"; }
    Done all_gather(const void *mine, void *all, size_t bytes) override {
        return survivors_.all_gather(group_, mine, all, bytes);
    }
    Done check() override { return survivors_.check(group_); }

private:
    SurvivorExchange &survivors_;
    MemberGroup &group_;
    const uint32_t rank_;
};

} // namespace

Result<CommConfig> parse_config(const Comm &parent, const qcclConfig_t *config) {
    if (!config) return parent.parts().comm_config;
    return parse_config(config);
}

std::chrono::nanoseconds timeout_of(const Comm &parent, const CommConfig &comm_config) {
    return comm_config.timeout.value_or(parent.parts().timeout);
}

TraceOrigin origin_of_child(const Comm &parent, const char *how) {
    const CommTrace *const trace = parent.parts().trace.get();
    TraceOrigin origin =
        trace ? trace->origin_of_child(how) : TraceOrigin{.how = how, .is_child = true};
    if (parent.audit()) origin.audit = parent.audit()->collector();
    return origin;
}

Result<std::shared_ptr<Comm>> create_child(Comm &parent, MemberGroup &group,
                                           const CommConfig &comm_config, EnvSettings env_settings,
                                           const ChildOptions &options) {
    const CommParts &parts = parent.parts();
    const auto size = static_cast<uint32_t>(group.members.size());
    std::shared_ptr<SiblingComms> siblings;
    if (parts.siblings)
        siblings = parts.siblings->child_comm(group.topic, group.members.front(), size);
    CommBootstrap bootstrap(parts.transport->survivor_exchange(), group, parent.rank());
    env_settings.is_child = true;
    env_settings.measured = parts.measured;
    if (const uint64_t most = options.most_arena_bytes; most != 0) {
        std::optional<uint64_t> &arena = env_settings.settings.arena_bytes;
        arena = std::min(arena.value_or(most), most);
    }
    return create_comm(parts.implementations, bootstrap, parts.reach, comm_config, env_settings,
                       siblings, origin_of_child(parent, options.how), options.owner);
}

} // namespace qccl
