// Where sections lie, by one rule for all codecs, and the checks of what lies in them.
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

bool is_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

template <class T> T read(const std::byte *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
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
// finite number; a zero is +0. Here and below without branches, so that the loop over a chunk's
// scales becomes vector instructions: it runs on every chunk that comes.
int16_t is_strange_block_scale(uint16_t scale, int16_t limit) {
    constexpr uint16_t nan = 0x7FC0, negative_zero = 0x8000, magnitude = 0x7FFF;
    const bool is_large = static_cast<int16_t>(scale & magnitude) >= limit;
    return (scale != nan) & (is_large | (scale == negative_zero));
}

// A bucket's minimum and unit: both the canonical NaN, or finite, the unit +0 or a positive normal
// number; a minimum of zero is +0.
int32_t is_strange_bucket_scale(int32_t minimum, int32_t unit) {
    constexpr int32_t nan = 0x7FC00000, infinity = 0x7F800000, smallest_normal = 0x00800000;
    constexpr int32_t magnitude = 0x7FFFFFFF, negative_zero = -magnitude - 1;
    const bool is_nan = (minimum == nan) & (unit == nan);
    const bool is_minimum = ((minimum & magnitude) < infinity) & (minimum != negative_zero);
    const bool is_unit = (unit == 0) | ((unit >= smallest_normal) & (unit < infinity));
    return !(is_nan | (is_minimum & is_unit));
}

bool are_scales_valid(const Codec &codec, const PayloadLayout &layout,
                      std::span<const std::byte> payload) {
    const std::byte *scales = payload.data() + layout.scales;
    if (codec.id == CodecId::integer) {
        const auto limit = static_cast<int16_t>((255 - (codec.bits - 1)) << 7);
        int16_t strange = 0;
        for (uint64_t i = 0; i < layout.scale_count; i++)
            strange |= is_strange_block_scale(read<uint16_t>(scales + 2 * i), limit);
        return strange == 0;
    }
    int32_t strange = 0;
    for (uint64_t i = 0; i < layout.scale_count; i++)
        strange |= is_strange_bucket_scale(read<int32_t>(scales + 8 * i),
                                           read<int32_t>(scales + 8 * i + 4));
    return strange == 0;
}

} // namespace

// Of a block's scale, or a bucket's minimum and unit.
static size_t scale_bytes(const Codec &codec) {
    return codec.id == CodecId::integer ? sizeof(uint16_t) : 2 * sizeof(float);
}

PayloadSections::PayloadSections(const Codec &codec, uint64_t coded) {
    if (codec.is_plain()) return;
    for (const PlanePart &part : plane_parts)
        if ((codec.bits & part.bits) != 0) add({part.start, group_values, part.group_bytes()});
    const uint64_t bucket =
        codec.bucket == Codec::whole_chunk ? std::max<uint64_t>(coded, 1) : codec.bucket;
    add({&PayloadLayout::scales, bucket, scale_bytes(codec)});
}

PayloadLayout payload_layout(const Codec &codec, DataType type, uint64_t count) {
    PayloadLayout layout;
    if (codec.is_plain()) {
        layout.bytes = count * type_bytes(codec.plain_type(type));
        return layout;
    }
    const uint64_t skipped = codec.skips_incomplete ? count % codec.bucket : 0;
    layout.coded = count - skipped;
    for (const PayloadSection &section : PayloadSections(codec, layout.coded)) {
        layout.*section.start = align(layout.bytes);
        layout.bytes = layout.*section.start + section.bytes(layout.coded);
        if (section.start == &PayloadLayout::scales)
            layout.scale_count = section.units(layout.coded);
    }
    if (skipped != 0) {
        layout.raw = align(layout.bytes);
        layout.bytes = layout.raw + skipped * type_bytes(type);
    }
    return layout;
}

std::array<Gap, 5> gaps(const Codec &codec, const PayloadLayout &layout) {
    std::array<Gap, 5> found{};
    size_t next = 0, end = 0;
    for (const PayloadSection &section : PayloadSections(codec, layout.coded)) {
        const size_t start = layout.*section.start;
        found[next++] = {end, start - end};
        end = start + section.bytes(layout.coded);
    }
    if (layout.raw != 0) found[next] = {end, layout.raw - end};
    return found;
}

void clear_gaps(const Codec &codec, const PayloadLayout &layout, std::byte *payload) {
    for (const Gap &gap : gaps(codec, layout))
        std::fill_n(payload + gap.start, gap.bytes, std::byte{0});
}

Done check_payload(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    if (codec.is_plain()) return {};
    if (!is_padding_zero(layout, codec.bits, payload) || !are_gaps_zero(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: padding is not zero");
    if (!are_scales_valid(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: a scale is none that an encoder writes");
    return {};
}

} // namespace qccl
