// The messages of the handshake and their tags, by libsodium.
#include "bootstrap/handshake.hpp"

#include <string_view>
#include <type_traits>

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

static_assert(sizeof(Greeting) == 16 && sizeof(Hello) == 48 && sizeof(Challenge) == 80);
static_assert(sizeof(Claim) == 24 && sizeof(Proof) == 56);
static_assert(std::has_unique_object_representations_v<Claim>, "no padding reaches the wire");

// The two magics differ because a rank that connects to a port of its own host where no server
// listens any more may end up connected to itself.
using Magic = std::array<char, 8>;
static constexpr Magic rank_magic{'Q', 'C', 'C', 'L', '-', 'r', 'k', '\n'};
static constexpr Magic server_magic{'Q', 'C', 'C', 'L', '-', 's', 'v', '\n'};

template <class T> static std::span<const std::byte> bytes_of(const T &value) {
    return std::as_bytes(std::span<const T, 1>(&value, 1));
}

// The text makes a tag valid for one kind of message only.
static std::span<const std::byte> label(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

Done prepare_secrets() {
    if (sodium_init() >= 0) return {};
    return Error::make(Code::system_error, "libsodium finds no source of random numbers");
}

Tag keyed_hash(const Key &key, std::span<const std::span<const std::byte>> parts) {
    crypto_generichash_state state;
    crypto_generichash_init(&state, reinterpret_cast<const unsigned char *>(key.data()), key.size(),
                            sizeof(Tag));
    for (const auto part : parts)
        crypto_generichash_update(&state, reinterpret_cast<const unsigned char *>(part.data()),
                                  part.size());
    Tag tag;
    crypto_generichash_final(&state, reinterpret_cast<unsigned char *>(tag.data()), tag.size());
    return tag;
}

bool is_equal(const Tag &a, const Tag &b) {
    return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

static Greeted judge(const Greeting &greeting, const Magic &magic) {
    if (greeting.magic != magic) return Greeted::stranger;
    return greeting.version == protocol_version ? Greeted::same_version : Greeted::other_version;
}

Greeted judge(const Hello &hello) { return judge(hello.greeting, rank_magic); }
Greeted judge_server(const Greeting &greeting) { return judge(greeting, server_magic); }

static Nonce make_nonce() {
    Nonce nonce;
    randombytes_buf(nonce.data(), nonce.size());
    return nonce;
}

static Tag challenge_tag(const Transcript &seen, const Secret &secret) {
    const std::span<const std::byte> parts[] = {label("qccl server proves"), bytes_of(seen.hello),
                                                bytes_of(seen.challenge.greeting),
                                                bytes_of(seen.challenge.nonce)};
    return keyed_hash(secret, parts);
}

static Tag proof_tag(const Transcript &seen, const Claim &claim, const Secret &secret) {
    const std::span<const std::byte> parts[] = {label("qccl rank proves"), bytes_of(seen.hello),
                                                bytes_of(seen.challenge), bytes_of(claim)};
    return keyed_hash(secret, parts);
}

Hello make_hello(bool wants_room) {
    return {{rank_magic, protocol_version, static_cast<uint8_t>(wants_room), {}}, make_nonce()};
}

Challenge make_challenge(const Hello &hello, const Secret &secret) {
    Challenge challenge{{server_magic, protocol_version, 0, {}}, make_nonce(), {}};
    challenge.tag = challenge_tag({hello, challenge}, secret);
    return challenge;
}

bool is_genuine(const Transcript &seen, const Secret &secret) {
    return is_equal(seen.challenge.tag, challenge_tag(seen, secret));
}

Proof make_proof(const Transcript &seen, const Claim &claim, const Secret &secret) {
    return {claim, proof_tag(seen, claim, secret)};
}

bool is_genuine(const Proof &proof, const Transcript &seen, const Secret &secret) {
    return is_equal(proof.tag, proof_tag(seen, proof.claim, secret));
}

Key session_key(const Transcript &seen, const Secret &secret) {
    const std::span<const std::byte> parts[] = {label("qccl session key"), bytes_of(seen.hello),
                                                bytes_of(seen.challenge)};
    return keyed_hash(secret, parts);
}

Claim make_claim(uint32_t rank, uint32_t size) {
    // Process ids repeat between containers; the namespace tells the processes apart.
    struct stat ns {};
    if (stat("/proc/self/ns/pid", &ns) != 0) ns.st_ino = 0;
    return {rank, size, static_cast<uint32_t>(getpid()), 0, ns.st_ino};
}

} // namespace qccl
