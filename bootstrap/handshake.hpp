// How two strangers prove to each other that they hold the same secret, without showing it. Keyed
// BLAKE2b over fresh random numbers of both sides, so that nothing recorded can be used again.
// Authenticity only: what is exchanged later is not hidden from who can read the network.
//
//   rank   -> server   Hello      magic, version, rank's nonce
//   server -> rank     Challenge  magic, version, server's nonce, tag over both nonces
//   rank   -> server   Proof      claim, tag over both nonces and the claim; all zeros where the
//                                 server's tag is of another secret, so that the server learns that
//
// Knows bytes only: neither sockets nor time.
#pragma once

#include "bootstrap/unique_id.hpp"

#include <span>

namespace qccl {

// Of everything that ranks and server say to each other.
inline constexpr uint16_t protocol_version = 1;

using Nonce = std::array<std::byte, 32>;
using Tag = std::array<std::byte, 32>;
using Key = std::array<std::byte, 32>;

// Keeps its form in all versions, so that each can name the other's.
struct Greeting {
    std::array<char, 8> magic{};
    uint16_t version = 0;
    uint8_t wants_room = 0; // 1, a rank's: to listen at this port itself, once nobody waits there
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

// Who a peer says it is. The process serves messages, and tells which rank the server lives in.
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

// What both sides have seen when the rank has the challenge.
struct Transcript {
    Hello hello;
    Challenge challenge;
};

enum class Greeted : uint8_t { stranger, other_version, same_version };
// Before anything that follows.
Done prepare_secrets();

Greeted judge(const Hello &hello);
Greeted judge_server(const Greeting &greeting);

Hello make_hello(bool wants_room = false);
Challenge make_challenge(const Hello &hello, const Secret &secret);
bool is_genuine(const Transcript &seen, const Secret &secret);
Proof make_proof(const Transcript &seen, const Claim &claim, const Secret &secret);
bool is_genuine(const Proof &proof, const Transcript &seen, const Secret &secret);
Key session_key(const Transcript &seen, const Secret &secret);

// A claim of the calling process.
Claim make_claim(uint32_t rank, uint32_t size);

// Keyed BLAKE2b of the parts, one after the other. Their lengths must follow from the first.
Tag keyed_hash(const Key &key, std::span<const std::span<const std::byte>> parts);
bool is_equal(const Tag &a, const Tag &b); // in a time that tells nothing

} // namespace qccl
