// What the 128 bytes of a unique id say: where the rendezvous listens, and the secret that opens
// it. Knows no interfaces.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/endpoint.hpp"

namespace qccl {

// Bytes, little-endian: magic 8, version 2, port 2, addresses 68, secret 32, checksum 16 (BLAKE2b
// of all that stands before it). An address is its family, 4 or 6, and its 4 or 16 bytes; zeros
// follow the last.
inline constexpr uint16_t unique_id_version = 2;

using Secret = std::array<std::byte, 32>;

struct IdFields {
    std::vector<Endpoint> endpoints; // of one port, best first
    Secret secret{};
};

// Leaves out addresses for which there is no room.
UniqueId pack(const IdFields &fields);
Result<IdFields> unpack(const UniqueId &id);

} // namespace qccl
