// Messages as ranks of a host hand them over: by reference to memory that both have mapped, under a
// tag that both compute. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

// Identifies one message of one call. Both ends compute it from their schedules.
struct MessageTag {
    uint32_t instance = 0; // which segment's run of the schedule
    uint32_t ordinal = 0;  // Step::ordinal: number of the message from this sender to this receiver
    bool operator==(const MessageTag &) const = default;
};

// A reference to bytes in a window, which is memory that its owner has exposed and that all its
// peers have mapped.
struct ZeroCopyRef {
    const std::byte *data = nullptr; // in this rank's mapping; null: there are none
    uint64_t bytes = 0;              // that may be read there
    uint32_t window = 0;             // number of the owner's window
};
// The window number of device memory: Windows::use_device_memory.
inline constexpr uint32_t device_window = 1U << 15;

// The bytes of a message, which do not change until every reader has released them.
struct MessageView {
    const std::byte *data = nullptr;
    uint64_t bytes = 0;
    uint32_t origin = 0;     // the rank in whose outbox or inbox they lie
    uint32_t slot = 0;       // the origin's slot
    ZeroCopyRef zero_copy{}; // more bytes of the message, in a window of the origin
};

} // namespace qccl
