// The version of the protocol between ranks, and the first bytes that ranks exchange, which compare
// it. A disagreement gives a sentence that is the same on every rank. Used by creation. Everything
// here is pure, and any thread may use it.
#pragma once

#include "base/result.hpp"

#include <cstdint>
#include <span>

namespace qccl {

// Versions of the protocol between ranks: chunks, descriptors, control messages, creation.
// Libraries that share a version may share a communicator.
inline constexpr uint32_t oldest_protocol = 15, newest_protocol = 15;

// The first bytes that ranks exchange; their layout never changes.
struct ProtocolOffer {
    static constexpr uint64_t expected_magic = 0x4F4C4C4548435151; // "QQCHELLO"
    static constexpr uint32_t expected_byte_order = 0x01020304;

    uint64_t magic = expected_magic;
    uint32_t byte_order = expected_byte_order;
    uint32_t oldest = oldest_protocol, newest = newest_protocol;
    uint32_t version = 0; // of the library, for the error's sentence
    uint32_t rank = 0, size = 0;
    uint64_t reserved[4] = {};
};
static_assert(sizeof(ProtocolOffer) == 64);

// Checks that the ranks share a byte order and a protocol (mismatch), and that the all-gather gave
// them in rank order (invalid_argument).
Done check_offers(std::span<const ProtocolOffer> all);

} // namespace qccl
