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

// A last, incomplete group keeps zeros where it has no values.
bool is_padding_zero(const PayloadLayout &layout, uint8_t bits,
                     std::span<const std::byte> payload) {
    const uint64_t last = layout.coded / group_values, values = layout.coded % group_values;
    if (values == 0) return true;
    for (const PlanePart &part : plane_parts) {
        if ((bits & part.bits) == 0) continue;
        const auto piece =
            payload.subspan(layout.*part.start + last * part.group_bytes(), part.group_bytes());
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

bool are_gaps_zero(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    for (const Gap &gap : gaps(codec, layout))
        if (!is_zero(payload.subspan(gap.start, gap.bytes))) return false;
    return true;
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
        end = layout.*part.start + groups * part.group_bytes();
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

std::array<Gap, 4> gaps(const Codec &codec, const PayloadLayout &layout) {
    std::array<Gap, 4> found{};
    if (codec.bits == 0) return found;
    const uint64_t groups = (layout.coded + group_values - 1) / group_values;
    size_t next = 0, end = 0;
    const auto add = [&](size_t start) { found[next++] = {end, start - end}; };
    for (const PlanePart &part : plane_parts) {
        if ((codec.bits & part.bits) == 0) continue;
        if (end != 0) add(layout.*part.start);
        end = layout.*part.start + groups * part.group_bytes();
    }
    add(layout.scales);
    end = layout.scales + layout.scale_count * scale_bytes(codec);
    if (layout.raw != 0) add(layout.raw);
    return found;
}

void clear_gaps(const Codec &codec, const PayloadLayout &layout, std::byte *payload) {
    for (const Gap &gap : gaps(codec, layout)) std::memset(payload + gap.start, 0, gap.bytes);
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
