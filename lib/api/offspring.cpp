#include "api/offspring.hpp"

#include <algorithm>

namespace qccl {

namespace {

class CouncilBootstrap final : public Bootstrap {
public:
    CouncilBootstrap(Council &council, Circle &circle, uint32_t own_rank)
        : council_(council), circle_(circle),
          rank_(static_cast<uint32_t>(
              std::find(circle.members.begin(), circle.members.end(), own_rank) -
              circle.members.begin())) {}

    uint32_t rank() const override { return rank_; }
    uint32_t size() const override { return static_cast<uint32_t>(circle_.members.size()); }
    Done all_gather(const void *mine, void *all, size_t bytes) override {
        return council_.all_gather(circle_, mine, all, bytes);
    }
    Done check() override { return council_.check(circle_); }

private:
    Council &council_;
    Circle &circle_;
    const uint32_t rank_;
};

} // namespace

Result<CommWishes> take_wishes(const Comm &parent, const qcclConfig_t *config) {
    if (!config) return parent.parts().wishes;
    return take_wishes(config);
}

std::chrono::nanoseconds timeout_of(const Comm &parent, const CommWishes &wishes) {
    return wishes.timeout.value_or(parent.parts().timeout);
}

Result<std::shared_ptr<Comm>> create_offspring(Comm &parent, Circle &circle,
                                               const CommWishes &wishes, const char *how) {
    const CommParts &parts = parent.parts();
    const auto size = static_cast<uint32_t>(circle.members.size());
    std::shared_ptr<Family> family;
    if (parts.family) family = parts.family->offspring(circle.topic, circle.members.front(), size);
    CouncilBootstrap bootstrap(parts.transport->council(), circle, parent.rank());
    TraceOrigin origin =
        parts.trace ? parts.trace->origin_of_child(how) : TraceOrigin{.how = how, .is_child = true};
    if (parent.audit()) origin.audit = parent.audit()->collector();
    Surroundings surroundings = read_surroundings();
    surroundings.is_offspring = true;
    surroundings.measured = parts.measured;
    return create_comm(bootstrap, parts.reach, wishes, surroundings, family, origin);
}

} // namespace qccl
