// The handshake by which a rank and the rendezvous server prove to each other that they hold the
// same secret, without revealing it. The proofs are keyed BLAKE2b over fresh random numbers of both
// sides, so that a recorded handshake is of no use. This gives authenticity only: the data
// exchanged later is not hidden from a reader of the network.
//
//   rank   -> server   Hello      magic, version, rank's nonce
//   server -> rank     Challenge  magic, version, server's nonce, tag over both nonces
//   rank   -> server   Proof      claim, tag over both nonces and the claim; all zeros if the
//                                 server's tag is of another secret, so that the server learns that
//
// The functions work on bytes only and do not block. Any thread may call them after
// prepare_secrets().
#pragma once

#include "bootstrap/unique_id.hpp"

#include <span>

namespace qccl {

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

Greeted judge(const Hello &hello);
Greeted judge_server(const Greeting &greeting);

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

} // namespace qccl
