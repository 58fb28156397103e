// The random choice of settings (world_setting.hpp).
#include "world_setting.hpp"

#include <array>

namespace stress {

const char *name(Runner runner) {
    static constexpr const char *names[] = {"threads of qcclCommInitAll", "threads", "processes"};
    return names[static_cast<size_t>(runner)];
}

Setting draw_setting(Random &random, bool has_network, int one_in) {
    Setting setting;
    setting.ranks = 2 + random.below(max_ranks - 1);
    setting.runner = random.one_of(std::array{Runner::init_all, Runner::init_all, Runner::threads,
                                              Runner::processes, Runner::processes});
    const int hosts = random.below(one_in) == 0 ? 2 + random.below(setting.ranks - 1) : 1;
    if (setting.runner != Runner::init_all && has_network) setting.hosts = hosts;
    return setting;
}

} // namespace stress
