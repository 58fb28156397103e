// Moves codes between lanes and the planes of a payload (lib/codec/payload.hpp). A lane has the
// codes of its values in the bytes of words, so that an operation on a word is one on four codes.
// Payloads start at multiples of 16 bytes.
#pragma once

#include "device/batch.hpp"
#include "kernels/gpu/gpu_lane.hpp"

namespace qccl::QCCL_GPU {

// The codes of the values that a lane holds: their low eight bits, and the bits above, which few
// codecs have.
template <class Layout> struct HeldCodes {
    static constexpr unsigned words = Layout::length / 4; // of a run
    uint32_t low[Layout::runs][words] = {}, high[Layout::runs][words] = {};
};

// Calls f(run, i) for each word of codes.
template <class Layout, class Call> QCCL_DEVICE void for_each_word(Call &&call) {
#pragma unroll
    for (unsigned run = 0; run < Layout::runs; run++)
#pragma unroll
        for (unsigned i = 0; i < HeldCodes<Layout>::words; i++) call(run, i);
}

// Returns a word with `bits` in each byte.
QCCL_DEVICE constexpr uint32_t in_each_byte(uint32_t bits) { return bits * 0x01010101U; }

// Returns the lowest bits of a word's bytes as four neighbouring bits, and the reverse. The factor
// has a bit for each place to which a bit moves, and no two of the moved bits meet.
QCCL_DEVICE uint32_t gathered(uint32_t bytes) {
    return (bytes & in_each_byte(1)) * 0x10204080U >> 28;
}
QCCL_DEVICE uint32_t scattered(uint32_t bits) { return bits * 0x00204081U & in_each_byte(1); }

// Returns the piece of a plane that belongs to one group.
QCCL_DEVICE std::byte *piece(const Operand &operand, ChunkPart plane, unsigned plane_bits,
                             uint64_t group) {
    return operand.at + operand.section[static_cast<size_t>(plane)] +
           (operand.begin / 32 + group) * (4 * plane_bits);
}

// Stores the codes of a row. All lanes of the warp must call; only groups that the tensor has are
// written. The two lanes of a group exchange codes so that each stores half of what a plane has of
// the group.
QCCL_DEVICE void store_codes(const Operand &operand, uint64_t group, bool is_inside,
                             const HeldCodes<Grouped> &codes) {
    const unsigned bits = operand.bits;
    const auto at = [&](ChunkPart plane, unsigned width) {
        return piece(operand, plane, width, group) + 2 * width * column();
    };
    if ((bits & 8) != 0) {
        uint32_t wanted[2], half[4];
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            const uint32_t first = codes.low[0][i], second = codes.low[1][i];
            wanted[i] = shuffle_xor(column() == 0 ? second : first, 1);
            half[i] = column() == 0 ? first : wanted[i];
            half[i + 2] = column() == 0 ? wanted[i] : second;
        }
        if (is_inside) store(at(ChunkPart::plane8, 8), half);
    }
    unsigned low = 0; // first bit that the plane holds, of those that plane8 does not hold
    const auto part = [&](unsigned run, unsigned i, unsigned width) {
        const uint32_t high_part = codes.high[run][i], low_part = codes.low[run][i];
        const uint32_t rest = (bits & 8) != 0 ? high_part : low_part;
        return rest >> low & in_each_byte((1U << width) - 1);
    };
    if ((bits & 4) != 0) {
        uint32_t half[2];
#pragma unroll
        for (unsigned i = 0; i < 2; i++) half[i] = part(0, i, 4) | part(1, i, 4) << 4;
        if (is_inside) store(at(ChunkPart::plane4, 4), half);
        low += 4;
    }
    if ((bits & 2) != 0) {
        // The first and third value of a byte are those of column 0.
        uint32_t own[2];
#pragma unroll
        for (unsigned i = 0; i < 2; i++)
            own[i] = (part(0, i, 2) | part(1, i, 2) << 4) << (2 * column());
        const uint32_t wanted = shuffle_xor(column() == 0 ? own[1] : own[0], 1);
        if (is_inside)
            store_one(at(ChunkPart::plane2, 2), (column() == 0 ? own[0] : own[1]) | wanted);
        low += 2;
    }
    if ((bits & 1) != 0) {
        uint32_t own = 0;
#pragma unroll
        for (unsigned run = 0; run < 2; run++)
            own |= (gathered(part(run, 0, 1)) | gathered(part(run, 1, 1)) << 4) << (16 * run);
        own <<= 8 * column();
        const uint32_t word = own | shuffle_xor(own, 1);
        if (is_inside && column() == 0)
            store_one(piece(operand, ChunkPart::plane1, 1, group), word);
    }
}

// Calls take(run, words) with the words that the plane has of each run's codes, or 0 if the tensor
// does not have the run.
template <unsigned width, class Layout, class Take>
QCCL_DEVICE void load_plane(const Operand &operand, ChunkPart plane, const Place<Layout> &place,
                            Take &&take) {
    constexpr unsigned bytes = 4 * width; // of a group's piece
    const std::byte *const at =
        piece(operand, plane, width, place.group(0)) + place.inner(0) % bytes;
#pragma unroll
    for (unsigned run = 0; run < Layout::runs; run++) {
        const unsigned offset = Layout::offset(run);
        uint32_t words[(Layout::length < bytes ? Layout::length : bytes) / 4] = {};
        if (place.has(run)) load(at + offset / 32 * bytes + offset % 32 % bytes, words);
        take(run, words);
    }
}

template <class Layout>
QCCL_DEVICE void load_codes(const Operand &operand, const Place<Layout> &place,
                            HeldCodes<Layout> &codes) {
    constexpr unsigned words = HeldCodes<Layout>::words;
    const unsigned bits = operand.bits;
    if ((bits & 8) != 0) {
        load_plane<8>(operand, ChunkPart::plane8, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
#pragma unroll
                          for (unsigned i = 0; i < words; i++) codes.low[run][i] = loaded[i];
                      });
        if (bits == 8) return;
    }
    uint32_t rest[Layout::runs][words] = {}; // what plane8 does not hold
    if ((bits & 4) != 0)
        load_plane<4>(operand, ChunkPart::plane4, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
                          const unsigned shift = place.inner(run) / 16 * 4;
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] = loaded[i] >> shift & in_each_byte(15);
                      });
    unsigned low = bits & 4;
    if ((bits & 2) != 0) {
        load_plane<2>(operand, ChunkPart::plane2, place,
                      [&](unsigned run, const uint32_t(&loaded)[words]) {
                          const unsigned shift = place.inner(run) / 8 * 2;
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] |= (loaded[i] >> shift & in_each_byte(3)) << low;
                      });
        low += 2;
    }
    if ((bits & 1) != 0)
        load_plane<1>(operand, ChunkPart::plane1, place,
                      [&](unsigned run, const uint32_t(&loaded)[1]) {
                          const uint32_t own = loaded[0] >> place.inner(run);
#pragma unroll
                          for (unsigned i = 0; i < words; i++)
                              rest[run][i] |= scattered(own >> (4 * i) & 15) << low;
                      });
    for_each_word<Layout>([&](unsigned run, unsigned i) {
        const uint32_t own = rest[run][i], loaded = codes.low[run][i];
        codes.high[run][i] = (bits & 8) != 0 ? own : 0;
        codes.low[run][i] = (bits & 8) != 0 ? loaded : own;
    });
}

} // namespace qccl::QCCL_GPU
