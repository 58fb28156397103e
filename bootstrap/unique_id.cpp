// Packs, checks and unpacks unique ids.
#include "bootstrap/unique_id.hpp"

#include <bit>
#include <cstring>

#include <sodium.h>

namespace qccl {

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
        return Error::make(Code::invalid_argument,
                           "the unique id was not made by QCCL (did qcclGetUniqueId succeed?)");
    // Other versions have only the magic and the version in the same places.
    if (bytes.version != unique_id_version)
        return Error::make(Code::invalid_argument,
                           "the unique id has version %u, this library knows version %u: the ranks "
                           "run different releases of QCCL",
                           bytes.version, unique_id_version)
            .compared(unique_id_version, bytes.version);
    IdFields fields{read_addresses(bytes), bytes.secret};
    if (bytes.checksum != checksum(bytes) || fields.endpoints.empty())
        return Error::make(Code::invalid_argument,
                           "the unique id is damaged: its checksum does not fit its bytes");
    return fields;
}

} // namespace qccl
