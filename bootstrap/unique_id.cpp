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
    uint16_t family;
    uint16_t port;
    uint16_t zero;
    std::array<std::byte, 16> address;
    Secret secret;
    std::array<std::byte, 48> zeros;
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

} // namespace

UniqueId pack(const IdFields &fields) {
    IdBytes bytes{};
    bytes.magic = id_magic;
    bytes.version = unique_id_version;
    bytes.family = static_cast<uint16_t>(fields.endpoint.family);
    bytes.port = fields.endpoint.port;
    bytes.address = fields.endpoint.address;
    bytes.secret = fields.secret;
    bytes.checksum = checksum(bytes);
    return std::bit_cast<UniqueId>(bytes);
}

Result<IdFields> unpack(const UniqueId &id) {
    const auto bytes = std::bit_cast<IdBytes>(id);
    if (bytes.magic != id_magic)
        return Error::make(Code::invalid_argument, "the unique id was not made by QCCL");
    // Only the magic and the version keep their places in other versions.
    if (bytes.version != unique_id_version)
        return Error::make(Code::invalid_argument,
                           "the unique id has version %u, this library knows version %u: the ranks "
                           "run different releases of QCCL",
                           bytes.version, unique_id_version)
            .compared(unique_id_version, bytes.version);
    const auto family = static_cast<AddressFamily>(bytes.family);
    const bool is_sound = bytes.checksum == checksum(bytes) && bytes.zero == 0 &&
                          bytes.zeros == decltype(bytes.zeros){} &&
                          (family == AddressFamily::ipv4 || family == AddressFamily::ipv6);
    if (!is_sound)
        return Error::make(Code::invalid_argument,
                           "the unique id is damaged: its checksum does not fit its bytes");
    return IdFields{{family, bytes.port, bytes.address}, bytes.secret};
}

} // namespace qccl
