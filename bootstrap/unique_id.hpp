// The content of the 128 bytes of a unique id: where the rendezvous listens, and its secret. The
// bootstrap uses it. Pure functions.
#pragma once

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/endpoint.hpp"

namespace qccl {

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

} // namespace qccl
