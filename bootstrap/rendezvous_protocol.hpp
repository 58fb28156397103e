// The bytes that the ranks and the server of a rendezvous exchange: the content of a unique id, the
// handshake, and the frames after it. The client, the server and the environment bootstrap use it.
// All functions work on bytes in memory and do not block. Any thread may call them after
// prepare_secrets(); pack() and unpack() also before. One thread at a time may use a Session.
//
// In the handshake a rank and the server prove to each other that they hold the same secret,
// without revealing it. The proofs are keyed BLAKE2b over fresh random numbers of both sides, so
// that a recorded handshake is of no use. This gives authenticity only: the data exchanged later is
// not hidden from a reader of the network.
//
//   rank   -> server   Hello      magic, version, rank's nonce
//   server -> rank     Challenge  magic, version, server's nonce, tag over both nonces
//   rank   -> server   Proof      claim, tag over both nonces and the claim; all zeros if the
//                                 server's tag is of another secret, so that the server learns that
//
// After the handshake each message is a frame: header, payload and tag. The tag is keyed for this
// connection and covers direction, header and payload. The header has a sequence number, so that a
// frame cannot be repeated, left out or reordered.
#pragma once

#include "bootstrap/bootstraps.hpp"
#include "net/addresses.hpp"

#include <optional>
#include <span>

namespace qccl {

// ---- Unique id

// Layout in bytes, little-endian: magic 8, version 2, port 2, addresses 68, secret 32, checksum 16
// (BLAKE2b of all bytes before it). An address is its family, 4 or 6, and its 4 or 16 bytes; zeros
// follow the last address.
inline constexpr uint16_t unique_id_version = 2;

using Secret = std::array<std::byte, 32>;

struct IdFields {
    std::vector<Endpoint> endpoints; // all with one port, best first
    Secret secret{};
};

// Leaves out addresses that do not fit.
UniqueId pack(const IdFields &fields);
Result<IdFields> unpack(const UniqueId &id);

// ---- Handshake

// The version of all that ranks and server send to each other.
inline constexpr uint16_t protocol_version = 1;

using Nonce = std::array<std::byte, 32>;
using Tag = std::array<std::byte, 32>;
using Key = std::array<std::byte, 32>;

// This layout is the same in all versions, so that each side can name the other's version.
struct Greeting {
    std::array<char, 8> magic{};
    uint16_t version = 0;
    uint8_t wants_room = 0; // 1: the rank wants to listen here itself, once no rank waits
    std::array<std::byte, 5> zero{};
};

struct Hello {
    Greeting greeting;
    Nonce nonce{};
};

struct Challenge {
    Greeting greeting;
    Nonce nonce{};
    Tag tag{};
};

// The identity that a peer claims. The process id serves messages, and tells the server which rank
// is in its own process.
struct Claim {
    uint32_t rank = 0;
    uint32_t size = 0;
    uint32_t process = 0;
    uint32_t zero = 0;
    uint64_t process_namespace = 0;
};

struct Proof {
    Claim claim;
    Tag tag{};
};

// The messages that both sides have seen when the rank has the challenge.
struct Transcript {
    Hello hello;
    Challenge challenge;
};

enum class Greeted : uint8_t { stranger, other_version, same_version };
// Initialises libsodium. Call it before the functions below. Returns system_error if there is no
// source of random numbers.
Done prepare_secrets();

Greeted check_greeting(const Hello &hello);
Greeted check_server_greeting(const Greeting &greeting);

Hello make_hello(bool wants_room = false);
Challenge make_challenge(const Hello &hello, const Secret &secret);
bool is_genuine(const Transcript &seen, const Secret &secret);
Proof make_proof(const Transcript &seen, const Claim &claim, const Secret &secret);
bool is_genuine(const Proof &proof, const Transcript &seen, const Secret &secret);
Key session_key(const Transcript &seen, const Secret &secret);

// Makes a claim for the calling process.
Claim make_claim(uint32_t rank, uint32_t size);

// Returns keyed BLAKE2b over the parts, one after the other. The first part must determine the
// lengths of all parts.
Tag keyed_hash(const Key &key, std::span<const std::span<const std::byte>> parts);
bool is_equal(const Tag &a, const Tag &b); // in constant time

// ---- Frames

enum class FrameKind : uint32_t {
    accepted = 1,   // server: claim valid; payload: rank in the server's process (int32), -1: none
    host = 2,       // server: that rank has joined later; payload: as for accepted
    complete = 3,   // server: every rank has joined
    failed = 4,     // server: the rendezvous has failed; payload: Error
    missing = 5,    // server: answer to ask and wonder; payload: Error whose text names the ranks
    result = 6,     // server: all contributions in rank order
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

// The Error that a payload holds.
Error to_error(std::span<const std::byte> payload);

} // namespace qccl
