// Packs and unpacks unique ids, makes and checks the messages of the handshake and the frames.
// Hashes, tags and random numbers come from libsodium.
#include "bootstrap/rendezvous_protocol.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <type_traits>

#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

namespace qccl {

// ---- Unique id

namespace {

constexpr std::array<char, 8> id_magic{'Q', 'C', 'C', 'L', '-', 'i', 'd', '\n'};

struct IdBytes {
    std::array<char, 8> magic;
    uint16_t version;
    uint16_t port;
    std::array<std::byte, 68> addresses;
    Secret secret;
    std::array<std::byte, 16> checksum;
};
static_assert(sizeof(IdBytes) == unique_id_bytes);
static_assert(std::endian::native == std::endian::little,
              "fields are stored as they lie in memory");

std::array<std::byte, 16> checksum(const IdBytes &bytes) {
    std::array<std::byte, 16> sum;
    crypto_generichash(reinterpret_cast<unsigned char *>(sum.data()), sum.size(),
                       reinterpret_cast<const unsigned char *>(&bytes), offsetof(IdBytes, checksum),
                       nullptr, 0);
    return sum;
}

size_t address_bytes(AddressFamily family) { return family == AddressFamily::ipv4 ? 4 : 16; }

void write_addresses(const std::vector<Endpoint> &endpoints, IdBytes &bytes) {
    size_t at = 0;
    for (const Endpoint &endpoint : endpoints) {
        const size_t length = address_bytes(endpoint.family);
        if (at + 1 + length > bytes.addresses.size()) continue;
        bytes.addresses[at++] = static_cast<std::byte>(endpoint.family);
        std::memcpy(&bytes.addresses[at], endpoint.address.data(), length);
        at += length;
    }
}

// Returns nothing if a byte is not what write_addresses() would have written.
std::vector<Endpoint> read_addresses(const IdBytes &bytes) {
    std::vector<Endpoint> endpoints;
    size_t at = 0;
    while (at < bytes.addresses.size() && bytes.addresses[at] != std::byte{0}) {
        Endpoint endpoint{static_cast<AddressFamily>(bytes.addresses[at++]), bytes.port, {}};
        if (endpoint.family != AddressFamily::ipv4 && endpoint.family != AddressFamily::ipv6)
            return {};
        const size_t length = address_bytes(endpoint.family);
        if (at + length > bytes.addresses.size()) return {};
        std::memcpy(endpoint.address.data(), &bytes.addresses[at], length);
        endpoints.push_back(endpoint);
        at += length;
    }
    for (; at < bytes.addresses.size(); at++)
        if (bytes.addresses[at] != std::byte{0}) return {};
    return endpoints;
}

} // namespace

UniqueId pack(const IdFields &fields) {
    IdBytes bytes{};
    bytes.magic = id_magic;
    bytes.version = unique_id_version;
    bytes.port = fields.endpoints.empty() ? uint16_t{0} : fields.endpoints.front().port;
    write_addresses(fields.endpoints, bytes);
    bytes.secret = fields.secret;
    bytes.checksum = checksum(bytes);
    return std::bit_cast<UniqueId>(bytes);
}

Result<IdFields> unpack(const UniqueId &id) {
    const auto bytes = std::bit_cast<IdBytes>(id);
    if (bytes.magic != id_magic)
        return invalid_argument(
            "the unique id was not made by QCCL (did qcclGetUniqueId succeed?)");
    // Other versions have only the magic and the version in the same places.
    if (bytes.version != unique_id_version)
        return invalid_argument(
                   "the unique id has version %u, this library knows version %u: the ranks "
                   "run different releases of QCCL",
                   bytes.version, unique_id_version)
            .compared(unique_id_version, bytes.version);
    IdFields fields{read_addresses(bytes), bytes.secret};
    if (bytes.checksum != checksum(bytes) || fields.endpoints.empty())
        return invalid_argument("the unique id is damaged: its checksum does not fit its bytes");
    return fields;
}

// ---- Handshake

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

static Greeted check_greeting(const Greeting &greeting, const Magic &magic) {
    if (greeting.magic != magic) return Greeted::stranger;
    return greeting.version == protocol_version ? Greeted::same_version : Greeted::other_version;
}

Greeted check_greeting(const Hello &hello) { return check_greeting(hello.greeting, rank_magic); }
Greeted check_server_greeting(const Greeting &greeting) {
    return check_greeting(greeting, server_magic);
}

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

// ---- Frames

static_assert(sizeof(FrameHead) == 16);

Tag Session::tag(Side from, const FrameHead &head, std::span<const std::byte> payload) const {
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&from, 1)),
                                                std::as_bytes(std::span(&head, 1)), payload};
    return keyed_hash(key_, parts);
}

Sealed Session::seal(FrameKind kind, std::span<const std::byte> payload) {
    const FrameHead head{kind, static_cast<uint32_t>(payload.size()), sent_++};
    return {head, tag(side_, head, payload)};
}

static FrameHead head_of(std::span<const std::byte> held) {
    FrameHead head;
    std::memcpy(&head, held.data(), sizeof head);
    return head;
}

size_t Session::wanted_bytes(std::span<const std::byte> held) {
    if (held.size() < sizeof(FrameHead)) return sizeof(FrameHead);
    return frame_overhead_bytes + head_of(held).bytes;
}

Result<std::optional<Frame>> Session::open(std::span<const std::byte> held, size_t limit) {
    if (held.size() < sizeof(FrameHead)) return std::optional<Frame>();
    const FrameHead head = head_of(held);
    const auto damaged = [](const char *what) {
        return Error::make(Code::damaged_data, "a message of the rendezvous has %s", what);
    };
    if (head.bytes > limit) return damaged("more bytes than may be");
    if (head.sequence != opened_) return damaged("the wrong number");
    const size_t whole = frame_overhead_bytes + head.bytes;
    if (held.size() < whole) return std::optional<Frame>();

    const auto payload = held.subspan(sizeof(FrameHead), head.bytes);
    Tag sent;
    std::memcpy(sent.data(), held.data() + whole - sizeof sent, sizeof sent);
    const Side other = side_ == Side::rank ? Side::server : Side::rank;
    if (!is_equal(sent, tag(other, head, payload))) return damaged("been changed on its way");
    opened_++;
    return std::optional<Frame>({head.kind, payload, whole});
}

Error to_error(std::span<const std::byte> payload) {
    Error error;
    if (payload.size() != sizeof error)
        return Error::make(Code::internal_error, "the rendezvous sent an error of %zu bytes",
                           payload.size());
    std::memcpy(&error, payload.data(), sizeof error);
    return error.make_printable();
}

} // namespace qccl
