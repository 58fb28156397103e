// The steps of a group's wait: a warning, a timeout, and naps in between.
#include "transport/member_group.hpp"

#include "base/deadline.hpp"

#include <cinttypes>
#include <thread>

namespace qccl {

using namespace std::chrono_literals;

static constexpr std::chrono::nanoseconds first_nap = 20us, longest_nap = 1ms;

std::chrono::nanoseconds GroupWait::timeout_for(uint32_t member) const {
    const RankStatus &status = peer_table_.segments[member].status();
    if (status.ignores_failure.load(std::memory_order_relaxed) == 0) return group_.timeout;
    if (group_.timeout == 0ns) return warning_.peer_timeout;
    return std::min(group_.timeout, warning_.peer_timeout);
}

Done GroupWait::step(const ArrivalState &found) {
    const uint32_t missing = found.missing.value_or(group_.members.front());
    const auto waited = Clock::now() - began_;
    if (waited >= warning_.warn_after && !found.is_led && !has_warned_) {
        has_warned_ = true;
        const Error warning = Error::make(
            Code::timeout, "rank %u (pid %" PRId64 ") has not come to %s for %g s", missing,
            peer_table_.pids[missing], group_.what, in_seconds(warning_.warn_after));
        if (warning_.warn) warning_.warn(warning.text);
    }
    const auto timeout = timeout_for(missing);
    if (timeout != 0ns && waited >= timeout)
        return Error::make(Code::timeout, "rank %u did not come to %s within %g s", missing,
                           group_.what, in_seconds(timeout))
            .at_rank(missing);
    if (group_.is_called_off && group_.is_called_off())
        return Error::make(Code::invalid_usage,
                           "%s: the communicator is being ended by another thread", group_.what);
    nap_ = std::clamp(2 * nap_, first_nap, longest_nap);
    std::this_thread::sleep_for(nap_);
    return {};
}

} // namespace qccl
