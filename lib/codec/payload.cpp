#include "codec/payload.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and read in place");

namespace qccl {
namespace {

constexpr size_t section_alignment = 16;

size_t align(size_t at) {
    return (at + section_alignment - 1) / section_alignment * section_alignment;
}

// The planes that make up a code, and their pieces of a group in bytes.
struct PlanePart {
    unsigned bits;
    size_t PayloadLayout::*start;
};
constexpr PlanePart plane_parts[] = {
    {8, &PayloadLayout::plane8},
    {4, &PayloadLayout::plane4},
    {2, &PayloadLayout::plane2},
    {1, &PayloadLayout::plane1},
};
constexpr size_t group_bytes(unsigned plane_bits) { return group_values / 8 * plane_bits; }

size_t scale_bytes(const Codec &codec) {
    return codec.id == CodecId::integer ? sizeof(uint16_t) : 2 * sizeof(float);
}

bool is_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

template <class T> T read(std::span<const std::byte> bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

// A last, incomplete group keeps zeros where it has no values. Values i and i + step share a byte.
bool is_padding_zero(const PayloadLayout &layout, uint8_t bits,
                     std::span<const std::byte> payload) {
    const uint64_t last = layout.coded / group_values, values = layout.coded % group_values;
    if (values == 0) return true;
    for (const PlanePart &part : plane_parts) {
        if ((bits & part.bits) == 0) continue;
        const auto piece = payload.subspan(layout.*part.start + last * group_bytes(part.bits),
                                           group_bytes(part.bits));
        for (uint64_t value = values; value < group_values; value++) {
            const uint64_t bytes = piece.size();
            const uint64_t byte = part.bits == 1 ? value / 8 : value % bytes;
            const uint64_t shift = part.bits == 1 ? value % 8 : value / bytes * part.bits;
            const uint32_t mask = ((1U << part.bits) - 1) << shift;
            if ((std::to_integer<uint32_t>(piece[byte]) & mask) != 0) return false;
        }
    }
    return true;
}

// The gap in front of each section that follows another one.
bool are_gaps_zero(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    const uint64_t groups = (layout.coded + group_values - 1) / group_values;
    size_t end = 0;
    const auto is_gap_zero = [&](size_t start) {
        return is_zero(payload.subspan(end, start - end));
    };
    for (const PlanePart &part : plane_parts) {
        if ((codec.bits & part.bits) == 0) continue;
        if (!is_gap_zero(layout.*part.start)) return false;
        end = layout.*part.start + groups * group_bytes(part.bits);
    }
    if (!is_gap_zero(layout.scales)) return false;
    end = layout.scales + layout.scale_count * scale_bytes(codec);
    return layout.raw == 0 || is_gap_zero(layout.raw);
}

// A block's scale: the canonical NaN, or finite and so small that its lowest code decodes to a
// finite number; a zero is +0.
bool is_block_scale(uint16_t scale, unsigned bits) {
    constexpr uint32_t nan = 0x7FC0, negative_zero = 0x8000, magnitude = 0x7FFF;
    const uint32_t limit = (255 - (bits - 1)) << 7;
    return scale == nan || (scale != negative_zero && (scale & magnitude) < limit);
}

// A bucket's minimum and unit: both the canonical NaN, or finite, the unit +0 or a positive normal
// number; a minimum of zero is +0.
bool is_bucket_scale(uint32_t minimum, uint32_t unit) {
    constexpr uint32_t nan = 0x7FC00000, negative_zero = 0x80000000, infinity = 0x7F800000;
    constexpr uint32_t smallest_normal = 0x00800000, magnitude = 0x7FFFFFFF;
    if (minimum == nan) return unit == nan;
    return (minimum & magnitude) < infinity && minimum != negative_zero &&
           (unit == 0 || (unit >= smallest_normal && unit < infinity));
}

// No early exit, so that the compiler may use vectors.
bool are_scales_valid(const Codec &codec, const PayloadLayout &layout,
                      std::span<const std::byte> payload) {
    bool valid = true;
    if (codec.id == CodecId::integer)
        for (uint64_t i = 0; i < layout.scale_count; i++)
            valid &= is_block_scale(read<uint16_t>(payload, layout.scales + 2 * i), codec.bits);
    if (codec.id == CodecId::minmax)
        for (uint64_t i = 0; i < layout.scale_count; i++)
            valid &= is_bucket_scale(read<uint32_t>(payload, layout.scales + 8 * i),
                                     read<uint32_t>(payload, layout.scales + 8 * i + 4));
    return valid;
}

} // namespace

PayloadLayout payload_layout(const Codec &codec, DataType type, uint64_t count) {
    PayloadLayout layout;
    if (codec.id == CodecId::none || codec.is_cast()) {
        layout.bytes = count * (codec.is_cast() ? sizeof(uint16_t) : type_bytes(type));
        return layout;
    }
    const uint64_t bucket =
        codec.bucket == Codec::whole_chunk ? std::max<uint64_t>(count, 1) : codec.bucket;
    const uint64_t skipped = codec.skips_incomplete ? count % bucket : 0;
    layout.coded = count - skipped;
    layout.scale_count = layout.coded / bucket + (layout.coded % bucket != 0 ? 1 : 0);

    const uint64_t groups = (layout.coded + group_values - 1) / group_values;
    size_t end = 0;
    for (const PlanePart &part : plane_parts) {
        if ((codec.bits & part.bits) == 0) continue;
        layout.*part.start = align(end);
        end = layout.*part.start + groups * group_bytes(part.bits);
    }
    layout.scales = align(end);
    end = layout.scales + layout.scale_count * scale_bytes(codec);
    layout.bytes = end;
    if (skipped != 0) {
        layout.raw = align(end);
        layout.bytes = layout.raw + skipped * type_bytes(type);
    }
    return layout;
}

Done check_payload(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    if (codec.bits == 0) return {};
    if (!is_padding_zero(layout, codec.bits, payload) || !are_gaps_zero(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: padding is not zero");
    if (!are_scales_valid(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: a scale is none that an encoder writes");
    return {};
}

} // namespace qccl
