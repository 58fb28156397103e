// Moves codes between lanes and the planes of a payload (lib/codec/payload.hpp). A lane makes whole
// bytes of the planes of 8 and 4 bits. For the planes of 2 and 1 bits the two lanes of a group
// combine what each has. Payloads start at multiples of 16 bytes.
#pragma once

#include "device/batch.hpp"
#include "kernels/gpu/gpu_lane.hpp"

namespace qccl::QCCL_GPU {

// Returns the piece of a plane that belongs to one group.
QCCL_DEVICE std::byte *piece(const Operand &operand, ChunkPart plane, unsigned plane_bits,
                             uint64_t group) {
    return operand.at + operand.section[static_cast<size_t>(plane)] +
           (operand.begin / 32 + group) * (4 * plane_bits);
}

template <class Byte> QCCL_DEVICE uint64_t packed(Byte &&byte) {
    uint32_t words[2] = {};
#pragma unroll
    for (unsigned i = 0; i < 8; i++) words[i / 4] |= byte(i) << (8 * (i % 4));
    return uint64_t{words[1]} << 32 | words[0];
}
QCCL_DEVICE uint32_t byte_of(uint64_t word, unsigned i) {
    const auto half = static_cast<uint32_t>(i < 4 ? word : word >> 32);
    return half >> (8 * (i % 4)) & 0xFF;
}

// Stores the codes of a row. All lanes of the warp must call; only groups that the tensor has are
// written.
QCCL_DEVICE void store_codes(const Operand &operand, uint64_t group, bool is_inside,
                             const Octet<uint32_t> (&codes)[2]) {
    const unsigned bits = operand.bits;
    unsigned low = 0; // first bit of the code that the plane holds
    const auto part = [&](unsigned half, unsigned i, unsigned width) {
        return codes[half][i] >> low & ((1U << width) - 1);
    };
    if ((bits & 8) != 0 && is_inside) {
        std::byte *const at = piece(operand, ChunkPart::plane8, 8, group) + 8 * column();
        store_one(at, packed([&](unsigned i) { return part(0, i, 8); }));
        store_one(at + 16, packed([&](unsigned i) { return part(1, i, 8); }));
    }
    low = bits & 8;
    if ((bits & 4) != 0) {
        if (is_inside)
            store_one(piece(operand, ChunkPart::plane4, 4, group) + 8 * column(),
                      packed([&](unsigned i) { return part(0, i, 4) | part(1, i, 4) << 4; }));
        low += 4;
    }
    if ((bits & 2) != 0) {
        // The first and third value of a byte are those of column 0.
        const uint64_t own = packed(
            [&](unsigned i) { return (part(0, i, 2) | part(1, i, 2) << 4) << (2 * column()); });
        const uint64_t word = own | shuffle_xor(own, 1);
        if (is_inside && column() == 0)
            store_one(piece(operand, ChunkPart::plane2, 2, group), word);
        low += 2;
    }
    if ((bits & 1) != 0) {
        uint32_t own = 0;
#pragma unroll
        for (unsigned i = 0; i < 8; i++) own |= (part(0, i, 1) | part(1, i, 1) << 16) << i;
        own <<= 8 * column();
        const uint32_t word = own | shuffle_xor(own, 1);
        if (is_inside && column() == 0)
            store_one(piece(operand, ChunkPart::plane1, 1, group), word);
    }
}

QCCL_DEVICE void load_codes(const Operand &operand, Spot spot, Octet<uint32_t> &codes) {
    const unsigned bits = operand.bits;
    const auto at = [&](ChunkPart plane, unsigned plane_bits) {
        return piece(operand, plane, plane_bits, spot.group);
    };
    if ((bits & 8) != 0) {
        const auto word =
            load_one<uint64_t>(at(ChunkPart::plane8, 8) + 16 * spot.half + 8 * column());
        for_each_value([&](unsigned i) { codes[i] = byte_of(word, i); });
        if (bits == 8) return;
    } else {
        for_each_value([&](unsigned i) { codes[i] = 0; });
    }
    unsigned low = bits & 8;
    if ((bits & 4) != 0) {
        const auto word = load_one<uint64_t>(at(ChunkPart::plane4, 4) + 8 * column());
        for_each_value(
            [&](unsigned i) { codes[i] |= (byte_of(word, i) >> (4 * spot.half) & 15) << low; });
        low += 4;
    }
    if ((bits & 2) != 0) {
        const auto word = load_one<uint64_t>(at(ChunkPart::plane2, 2));
        const unsigned shift = 4 * spot.half + 2 * column();
        for_each_value([&](unsigned i) { codes[i] |= (byte_of(word, i) >> shift & 3) << low; });
        low += 2;
    }
    if ((bits & 1) != 0) {
        const uint32_t word =
            load_one<uint32_t>(at(ChunkPart::plane1, 1)) >> (16 * spot.half + 8 * column());
        for_each_value([&](unsigned i) { codes[i] |= (word >> i & 1) << low; });
    }
}

} // namespace qccl::QCCL_GPU
