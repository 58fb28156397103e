#include "transport/circle.hpp"

#include "base/deadline.hpp"

#include <cinttypes>
#include <thread>

namespace qccl {

using namespace std::chrono_literals;

static constexpr std::chrono::nanoseconds first_nap = 20us, longest_nap = 1ms;

std::chrono::nanoseconds CircleWait::timeout_for(uint32_t member) const {
    const Presence &presence = party_.segments[member].presence();
    if (presence.ignores_failure.load(std::memory_order_relaxed) == 0) return circle_.timeout;
    if (circle_.timeout == 0ns) return manners_.peer_timeout;
    return std::min(circle_.timeout, manners_.peer_timeout);
}

Done CircleWait::step(const Attendance &found) {
    const uint32_t missing = found.missing.value_or(circle_.members.front());
    const auto waited = Clock::now() - began_;
    if (waited >= manners_.warn_after && !found.is_led && !has_warned_) {
        has_warned_ = true;
        const Error warning = Error::make(
            Code::timeout, "rank %u (pid %" PRId64 ") has not come to %s for %g s", missing,
            party_.pids[missing], circle_.what, in_seconds(manners_.warn_after));
        if (manners_.warn) manners_.warn(warning.text);
    }
    const auto timeout = timeout_for(missing);
    if (timeout != 0ns && waited >= timeout)
        return Error::make(Code::timeout, "rank %u did not come to %s within %g s", missing,
                           circle_.what, in_seconds(timeout))
            .at_rank(missing);
    if (circle_.is_called_off && circle_.is_called_off())
        return Error::make(Code::invalid_usage,
                           "%s: the communicator is being ended by another thread", circle_.what);
    nap_ = std::clamp(2 * nap_, first_nap, longest_nap);
    std::this_thread::sleep_for(nap_);
    return {};
}

} // namespace qccl
