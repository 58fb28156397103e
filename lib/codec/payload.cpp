// Where sections lie, by one rule for all codecs.
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

} // namespace

PayloadSections::PayloadSections(const Codec &codec, uint64_t coded) {
    if (codec.is_plain()) return;
    for (const PlanePart &part : plane_parts)
        if ((codec.bits & part.bits) != 0) add(part.start, group_values, part.group_bytes());
    const uint64_t bucket =
        codec.bucket == Codec::whole_chunk ? std::max<uint64_t>(coded, 1) : codec.bucket;
    constexpr auto scales = &PayloadLayout::scales;
    switch (codec.id) {
    case CodecId::integer: add(scales, bucket, sizeof(uint16_t)); break;
    case CodecId::nvfp4:
        add(scales, nvfp4_block_values, sizeof(uint8_t));
        add(&PayloadLayout::bases, bucket, sizeof(float));
        break;
    case CodecId::mxfp8e4m3:
    case CodecId::mxfp6e2m3:
    case CodecId::mxfp4: add(scales, bucket, sizeof(uint8_t)); break;
    case CodecId::terngrad:
        add({&PayloadLayout::digits, bucket, ternary_step_values, ternary_step_bytes});
        add(scales, bucket, sizeof(float));
        break;
    default: add(scales, bucket, 2 * sizeof(float)); // minmax and onebit
    }
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
        if (section.start == &PayloadLayout::bases) layout.base_count = section.units(layout.coded);
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

} // namespace qccl
