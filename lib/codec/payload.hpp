// The sections of a chunk's payload: where codes, scales and skipped values lie, and whether bytes
// from outside are such as an encoder writes. Knows no header and computes no value.
#pragma once

#include "codec/codec.hpp"

#include <array>
#include <span>

namespace qccl {

// Where the sections of a payload lie, in bytes from its start; every section begins at a multiple
// of 16. Codes lie in planes of 8, 4, 2 and 1 bits; the scales (or minima and units) follow.
//
// A group is 32 consecutive values; byte i of a group's piece of a plane holds
//   plane8  32 bytes  value i
//   plane4  16 bytes  value i low, value i + 16 high
//   plane2   8 bytes  values i, i + 8, i + 16, i + 24 from the low bits up
//   plane1   4 bytes  values 8 i ... 8 i + 7 from the low bit up
// A code of b bits is split from its low bits up over the planes that make b: 7 = 4 + 2 + 1,
// 10 = 8 + 2.
// The last group is padded with codes 0; gaps before sections are zero. `none` and casts have the
// values alone, from the payload's start.
//
// Of a terngrad bucket of c values, byte i of ternary_bytes(c) = m holds the digits of values i,
// i + m, ..., i + 4 m, in base 3 from the lowest up; those of no value are 0.
struct PayloadLayout {
    size_t plane8 = 0, plane4 = 0, plane2 = 0, plane1 = 0;
    // integer: a bf16 per block; minmax: fp32 minimum and unit per bucket; mx: E8M0 per block;
    // nvfp4: E4M3 per block; onebit: two fp32 means per bucket, of codes 0 and 1;
    // terngrad: an fp32 per bucket.
    size_t scales = 0;
    size_t digits = 0; // terngrad, in the place of planes
    size_t bases = 0;  // nvfp4: an fp32 per bucket, in which its scales are given
    size_t raw = 0; // minmax with skip_incomplete: the values of the incomplete bucket, in the type
    // topk: how many values each page keeps, their indices in it, and they themselves in the type.
    size_t page_counts = 0, indices = 0, kept_values = 0;
    uint64_t kept = 0;
    size_t bytes = 0;   // to the end of the last section, exactly
    uint64_t coded = 0; // values that have codes: all, save those in `raw`; 0 for none and casts
    uint64_t scale_count = 0; // blocks or buckets
    uint64_t base_count = 0;  // buckets of blocks
};

inline constexpr uint64_t group_values = 32;
// Blocks of `int` that code for vectors takes: whole groups, and some of which a group has several.
constexpr bool is_vector_block(uint32_t block) {
    return block % group_values == 0 || block == 8 || block == 16;
}

// The planes a code may be split over, widest first; a code of b bits uses those that b is the sum
// of.
struct PlanePart {
    unsigned bits; // of a code that lie in the plane
    size_t PayloadLayout::*start;

    constexpr size_t group_bytes() const { return group_values / 8 * bits; }
};
inline constexpr PlanePart plane_parts[] = {
    {8, &PayloadLayout::plane8},
    {4, &PayloadLayout::plane4},
    {2, &PayloadLayout::plane2},
    {1, &PayloadLayout::plane1},
};

// topk: indices within a page have 16 bits, its number of kept values 32.
inline constexpr uint64_t topk_page_values = 65536;

// Five digits to a byte, and whole words.
inline constexpr uint64_t ternary_step_values = 20;
inline constexpr size_t ternary_step_bytes = 4;
constexpr size_t ternary_bytes(uint64_t values) {
    return (values + ternary_step_values - 1) / ternary_step_values * ternary_step_bytes;
}

// What lies in a payload for the values that have codes: units (groups, blocks, buckets) of so many
// values, and one for the rest at the end; a unit has so many bytes for every step of values.
struct PayloadSection {
    size_t PayloadLayout::*start = nullptr;
    uint64_t unit_values = 1, step_values = 1;
    size_t step_bytes = 0;

    uint64_t units(uint64_t values) const {
        return values / unit_values + (values % unit_values != 0 ? 1 : 0);
    }
    size_t bytes(uint64_t values) const {
        const auto steps = [this](uint64_t of) { return (of + step_values - 1) / step_values; };
        return step_bytes *
               (values / unit_values * steps(unit_values) + steps(values % unit_values));
    }
};
// In their order in the payload, those that the codec has, of a chunk of which `coded` values have
// codes.
class PayloadSections {
public:
    PayloadSections(const Codec &codec, uint64_t coded);
    const PayloadSection *begin() const { return sections_.data(); }
    const PayloadSection *end() const { return sections_.data() + count_; }

private:
    void add(const PayloadSection &section) { sections_[count_++] = section; }
    void add(size_t PayloadLayout::*start, uint64_t unit_values, size_t unit_bytes) {
        add({start, unit_values, unit_values, unit_bytes});
    }

    std::array<PayloadSection, 5> sections_; // a code has three planes at most
    size_t count_ = 0;
};

// Exact for every count up to 2^56, beyond what an address space holds.
PayloadLayout payload_layout(const Codec &codec, DataType type, uint64_t count);

// The bytes between the sections, at most 15 each; whoever encodes a chunk's end makes them zero.
struct Gap {
    size_t start = 0, bytes = 0;
};
std::array<Gap, 5> gaps(const Codec &codec, const PayloadLayout &layout);
void clear_gaps(const Codec &codec, const PayloadLayout &layout, std::byte *payload);

// Whether gaps, padding codes and scales are such as an encoder writes. `payload` has layout.bytes.
Done check_payload(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload);

} // namespace qccl
