// Frames between a rank and the rendezvous server after the handshake: header, payload and tag. The
// tag is keyed for this connection and covers direction, header and payload. The header has a
// sequence number, so that a frame cannot be repeated, left out or reordered. The rendezvous client
// and server use it; it does no I/O.
#pragma once

#include "bootstrap/handshake.hpp"

#include <optional>

namespace qccl {

enum class FrameKind : uint32_t {
    accepted = 1, // server: claim valid; payload: rank in the server's process (int32), -1: none
    host = 2,     // server: that rank has joined later; payload: as for accepted
    complete = 3, // server: every rank has joined
    failed = 4,   // server: the rendezvous has failed; payload: ErrorBytes
    missing = 5, // server: answer to ask and wonder; payload: ErrorBytes whose text names the ranks
    result = 6,  // server: all contributions in rank order
    contribute = 7, // rank: its part of an all-gather
    ask = 8,        // rank: which ranks are missing?
    leave = 9,      // rank: leaves, its work is done
    give_up = 10,   // rank: leaves, its timeout has passed
    wonder = 11,    // rank: like ask, but only one waiting rank is answered, and warns for all
};

struct FrameHead {
    FrameKind kind{};
    uint32_t bytes = 0; // of the payload
    uint64_t sequence = 0;
};

struct Frame {
    FrameKind kind{};
    std::span<const std::byte> payload;
    size_t whole_bytes = 0; // including header and tag
};

inline constexpr size_t frame_overhead_bytes = sizeof(FrameHead) + sizeof(Tag);

struct Sealed {
    FrameHead head;
    Tag tag{};
};

class Session {
public:
    enum class Side : uint8_t { server, rank };

    Session() = default;
    Session(const Key &key, Side side) : key_(key), side_(side) {}

    // Makes the header and the tag of a frame. Send header, payload and tag in this order.
    Sealed seal(FrameKind kind, std::span<const std::byte> payload);
    // Checks the frame at the start of `held`; the payload that it returns points into `held`.
    // Returns nothing if more bytes are needed: wanted_bytes() says how many. Returns damaged_data
    // if the stream is not what the peer sent, or if the payload is longer than `limit`.
    Result<std::optional<Frame>> open(std::span<const std::byte> held, size_t limit);
    static size_t wanted_bytes(std::span<const std::byte> held);

private:
    Tag tag(Side from, const FrameHead &head, std::span<const std::byte> payload) const;

    Key key_{};
    Side side_ = Side::rank;
    uint64_t sent_ = 0;
    uint64_t opened_ = 0;
};

// An Error in its wire format.
struct ErrorBytes {
    int32_t code;
    int32_t rank;
    int64_t expected;
    int64_t got;
    std::array<char, sizeof(Error::text)> text;
};

ErrorBytes to_bytes(const Error &error);
Error to_error(std::span<const std::byte> payload);

} // namespace qccl
