// What the 128 bytes of a unique id say: where the rendezvous listens, and the secret that opens
// it.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/endpoint.hpp"

namespace qccl {

// Bytes, little-endian: magic 8, version 2, family 2, port 2, zero 2, address 16, secret 32,
// zero 48, checksum 16 (BLAKE2b of all that stands before it).
inline constexpr uint16_t unique_id_version = 1;

using Secret = std::array<std::byte, 32>;

struct IdFields {
    Endpoint endpoint;
    Secret secret{};
};

UniqueId pack(const IdFields &fields);
Result<IdFields> unpack(const UniqueId &id);

} // namespace qccl
