// Converts ticks to nanoseconds by the two clocks' progress since the counters were made.
#include "engine/counters.hpp"

#include <chrono>

namespace qccl {
namespace {

uint64_t steady_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

} // namespace

Counters::Counters() : first_ticks_(ticks_now()), first_ns_(steady_ns()) {}

Counts Counters::read() const {
    const double ticks = static_cast<double>(ticks_now() - first_ticks_);
    const double ns_per_tick = ticks > 0 ? static_cast<double>(steady_ns() - first_ns_) / ticks : 1;
    const auto ns = [&](const Counter &counter) {
        return static_cast<uint64_t>(static_cast<double>(counter.get()) * ns_per_tick);
    };
    return {.calls = calls.get(),
            .raw_bytes = raw_bytes.get(),
            .wire_bytes = wire_bytes.get(),
            .lent_bytes = lent_bytes.get(),
            .encode_ns = ns(encode_ticks),
            .copy_ns = ns(copy_ticks),
            .wait_ns = ns(wait_ticks),
            .wire_ns = ns(wire_ticks),
            .network_ns = 0,
            .device_bytes = device_bytes.get()};
}

} // namespace qccl
