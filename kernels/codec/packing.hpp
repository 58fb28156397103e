// What a packed payload consists of (WIRE.md, "Packed payloads"), and the way from a payload to a
// packed one and back, which is the same on all tiers. A tier brings the steps that take time: it
// divides values into symbols and raw bits, and codes the symbols of a segment by rANS (Duda,
// arXiv:1311.2540), interleaved as Giesen does it (arXiv:1402.3392). Used by the scalar reference
// and by the tiers of the CPU. Any thread may call; nothing blocks.
#pragma once

#include "base/sizes.hpp"
#include "device/kernels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Symbol i of a segment belongs to the state of lane i % pack_lanes.
inline constexpr uint32_t pack_lanes = 32;
inline constexpr uint32_t probability_bits = 12, probability_sum = 1U << probability_bits;
// States lie between the least and 2^31; 16 bits enter and leave at a time.
inline constexpr uint32_t least_state = 1U << 15, state_limit = 1U << 31;
// An encoder shifts 16 bits out of a state that is at least the frequency shifted by this.
inline constexpr unsigned state_shift = 31 - probability_bits;
inline constexpr size_t packing_slack = 32; // words: a vector
// All parts of a packed payload begin at a multiple of it.
inline constexpr size_t part_alignment = 4;
constexpr size_t aligned(size_t bytes) { return round_up(bytes, part_alignment); }
inline constexpr size_t segment_symbols = PackScratch::symbols;

// How the symbols of a payload lie in it.
enum class SymbolForm : uint8_t {
    bytes,   // a symbol is a byte: codes of 8 bits, 2 of 4, 4 of 2, 8 of 1, or digits
    pairs,   // codes of 3 bits: values i and i + 16 of a group make a symbol of 6
    codes,   // codes of 5 to 7 bits
    high,    // codes of 10 or 12 bits: their upper 8; the lower ones are raw
    halves,  // values of 16 bits: the 8 below the sign; the others are raw
    floats,  // values of 32 bits: likewise
    doubles, // values of 64 bits: the 8 below the sign, and the next 8; the others are raw
    grid,    // bound: values of which blocks are packed as multiples of a step
};

struct SymbolSource {
    SymbolForm form = SymbolForm::bytes;
    unsigned bits = 8;     // of a symbol
    unsigned low_bits = 0; // high: of a code, below its symbol
    unsigned streams = 1;  // that are coded one after the other in a segment
    uint64_t symbols = 0;  // of a stream
    size_t start = 0;      // bytes: where they lie
    size_t end = 0;        // what lies behind travels as it is

    bool has_values() const { // divided into symbols and raw bits
        return form == SymbolForm::halves || form == SymbolForm::floats ||
               form == SymbolForm::doubles;
    }
    uint64_t segments() const { return (symbols + segment_symbols - 1) / segment_symbols; }
    size_t raw_bytes(size_t count) const;    // of so many symbols of a segment
    size_t stored_bytes(size_t count) const; // of a stream that is stored
};
SymbolSource symbols_of(const ChunkRange &whole);

// Symbols [first, first + count) of a payload, a segment of them.
struct SymbolSpan {
    uint64_t first;
    size_t count;
};

// How a segment of values leaves its zeros out: +0 has a symbol that no other value has, and
// nothing but that symbol is stored of it.
struct OmittedZeros {
    uint8_t symbol;
    size_t others; // values that are not +0
};

using States = std::array<uint32_t, pack_lanes>;

// A symbol's row of the encoder's table: its frequency, and above it the sum of those before it.
constexpr uint32_t encoder_entry(uint32_t frequency, uint32_t start) {
    return frequency | start << 16;
}
// An entry of the decoder's table, one for each of probability_sum slots: the symbol, its frequency
// less 1, and the slot's distance from the symbol's first one.
constexpr uint32_t decoder_entry(uint32_t symbol, uint32_t frequency, uint32_t distance) {
    return symbol | (frequency - 1) << 8 | distance << 20;
}

// Codes a symbol into a state. Returns whether that has put a word out.
constexpr bool encode_symbol(uint32_t entry, uint32_t &state, uint16_t &word) {
    const uint32_t frequency = entry & 0xFFFF, start = entry >> 16;
    const bool puts_out = state >> state_shift >= frequency;
    if (puts_out) {
        word = static_cast<uint16_t>(state);
        state >>= 16;
    }
    state = (state / frequency << probability_bits) + state % frequency + start;
    return puts_out;
}
// Takes a symbol out of a state. If the state is below the least one then, a word must be put in.
constexpr uint8_t decode_symbol(const uint32_t *table, uint32_t &state) {
    const uint32_t entry = table[state % probability_sum];
    state = ((entry >> 8 & 0xFFF) + 1) * (state >> probability_bits) + (entry >> 20);
    return static_cast<uint8_t>(entry);
}
constexpr bool are_least(const States &states) {
    for (const uint32_t state : states)
        if (state != least_state) return false;
    return true;
}

// What packing makes of a segment of values on a grid: of each block its width, and one behind the
// other the codes and values that are not entropy coded, and the codes that are.
struct PackedBlocks {
    float step;
    int kept = 0; // pointwise: bits of fraction
    bool is_pointwise, codes_entropy;
    uint8_t *widths, *symbols;
    size_t symbol_count = 0;
    std::byte *bodies;
    size_t room = 0, body_bytes = 0;
};

// The steps that take time. `streams` has the symbols, a stream each.
struct PackSteps {
    // Divides values into symbols and raw bits. Not for the form `bytes`.
    void (*split)(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                  const std::byte *payload, uint8_t *const streams[2], std::byte *raw);
    void (*join)(const ChunkRange &whole, const SymbolSource &source, SymbolSpan span,
                 const uint8_t *const streams[2], const std::byte *raw, std::byte *payload);
    // The same for a segment whose zeros are left out: raw bits, and the symbols of the second
    // stream, are those of the other values. `others` of them must be in the payload, and in
    // streams[0]. Only for values of 16 bits and more.
    void (*split_omitting)(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                           const std::byte *payload, uint8_t *const streams[2], std::byte *raw);
    void (*join_omitting)(const SymbolSource &source, SymbolSpan span, OmittedZeros zeros,
                          const uint8_t *const streams[2], const std::byte *raw,
                          std::byte *payload);
    // Codes symbols, the last row of pack_lanes of them first. Writes words upwards, at most one
    // for each symbol and `packing_slack` more, and returns their number. Leaves the states that a
    // decoder begins with.
    size_t (*encode)(const uint8_t *symbols, size_t count, const uint32_t *table, States &states,
                     uint16_t *words);
    // Takes words downwards. Returns false if there are not exactly as many as the symbols need, or
    // if the states are then not those that an encoder begins with. The step may read, but not use,
    // `packing_slack` words behind the last.
    bool (*decode)(std::span<const std::byte> words, States &states, const uint32_t *table,
                   uint8_t *symbols, size_t count);
    // Packs the blocks of a segment of values of T. Returns false if there is no room for bodies.
    bool (*pack_floats)(const float *values, size_t count, PackedBlocks &blocks);
    bool (*pack_doubles)(const double *values, size_t count, PackedBlocks &blocks);
    // Restores the values. Widths, bodies and symbols are as many as they have to be. Returns false
    // if what lies behind the last value is not zero.
    bool (*unpack_floats)(const PackedBlocks &blocks, float *values, size_t count);
    bool (*unpack_doubles)(const PackedBlocks &blocks, double *values, size_t count);
};

// The reference's steps. A tier may use them for what it has no fast path for.
extern const PackSteps scalar_pack_steps;

// Kernels::pack and Kernels::unpack with the steps of a tier.
size_t pack_with(const PackSteps &steps, const ChunkRange &whole, const std::byte *payload,
                 std::byte *packed, PackScratch &scratch);
bool unpack_with(const PackSteps &steps, const ChunkRange &whole, std::span<const std::byte> packed,
                 std::byte *payload, PackScratch &scratch);

} // namespace qccl
