// Messages between a rank and the server once both have proven themselves: head, payload, and a tag
// keyed for this connection over direction, head and payload. The head counts, so that nothing can
// be repeated, left out or turned round. Knows bytes only.
#pragma once

#include "bootstrap/handshake.hpp"

#include <optional>

namespace qccl {

enum class FrameKind : uint32_t {
    accepted = 1, // server: the claim holds; payload: rank the server lives in (int32), -1: none
    host = 2,     // server: the same payload, when that rank has come later
    complete = 3, // server: every rank has come
    failed = 4,   // server: nothing more will come; payload: ErrorBytes
    missing = 5, // server: answers ask and wonder; payload: ErrorBytes, its text the ranks in words
    result = 6,  // server: all contributions in rank order
    contribute = 7, // rank: its part of an all-gather
    ask = 8,        // rank: whom are we waiting for?
    leave = 9,      // rank: goes, having what it wanted
    give_up = 10,   // rank: goes, tired of waiting
    wonder = 11,    // rank: ask, but one of those that wait is answered, to tell it for all
};

struct FrameHead {
    FrameKind kind{};
    uint32_t bytes = 0; // of the payload
    uint64_t sequence = 0;
};

struct Frame {
    FrameKind kind{};
    std::span<const std::byte> payload;
    size_t whole_bytes = 0; // with head and tag
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

    // Sent as head, payload, tag.
    Sealed seal(FrameKind kind, std::span<const std::byte> payload);
    // Nothing: more bytes are needed, as many as `wanted_bytes` says. An error: the stream is not
    // what the peer sent, or its payload is longer than `limit`.
    Result<std::optional<Frame>> open(std::span<const std::byte> held, size_t limit);
    static size_t wanted_bytes(std::span<const std::byte> held);

private:
    Tag tag(Side from, const FrameHead &head, std::span<const std::byte> payload) const;

    Key key_{};
    Side side_ = Side::rank;
    uint64_t sent_ = 0;
    uint64_t opened_ = 0;
};

// An Error as it travels.
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
