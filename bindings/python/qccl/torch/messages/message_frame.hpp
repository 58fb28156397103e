// What travels between two ranks of a process group that exchange messages. QCCL's own messages
// match by their order alone; torch's have tags, may be received from any rank, and a send must not
// hold up the ones behind it. So each message begins with a frame that says what follows.
//
// A frame is one QCCL message of fixed size. A small message lies inside its frame. A longer one
// follows its frame at once ("eager") while the sender has credit, or waits at the sender until the
// receiver has posted its buffer ("rendezvous": request, grant, payload).
//
// PeerLink sends and receives frames. Nothing here blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace qccl_torch {

enum class FrameKind : uint32_t {
    eager = 1, // a message; its data lies in the frame, or follows as a QCCL message
    request,   // a message that waits at the sender
    grant,     // the receiver's buffer for request `id` is there
    refusal,   // the receiver's buffer for request `id` has another size, `bytes`
    payload,   // the data of request `id` follow as a QCCL message
    credit,    // the receiver has consumed `bytes` bytes of eager messages
    goodbye    // the sender sends no more
};

constexpr size_t inlined_bytes = 232;

struct MessageFrame {
    FrameKind kind = FrameKind::goodbye;
    int32_t tag = 0;
    uint64_t id = 0; // numbers the requests of a sender
    uint64_t bytes = 0;
    std::array<std::byte, inlined_bytes> data{};

    bool is_inlined() const { return kind == FrameKind::eager && bytes <= inlined_bytes; }
};
static_assert(sizeof(MessageFrame) == 256 && std::is_trivially_copyable_v<MessageFrame>);

constexpr size_t most_eager_bytes = size_t{64} << 10;
// Bytes of eager messages that a receiver may have to keep for one sender.
constexpr uint64_t eager_credit = uint64_t{1} << 20;

// What an eager message takes of the credit: a short one takes a frame.
constexpr uint64_t credit_for(uint64_t bytes) {
    return bytes < sizeof(MessageFrame) ? sizeof(MessageFrame) : bytes;
}

} // namespace qccl_torch
