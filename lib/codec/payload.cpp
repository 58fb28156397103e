// Computes where the sections of a payload lie, by one rule for all codecs.
#include "codec/payload.hpp"

#include "base/round_up.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and read in place");

namespace qccl {
namespace {

constexpr size_t section_alignment = 16;

size_t align(size_t at) { return round_up(at, section_alignment); }

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
    case CodecId::topk: add(&PayloadLayout::page_counts, topk_page_values, sizeof(uint32_t)); break;
    case CodecId::terngrad:
        add({&PayloadLayout::digits, bucket, ternary_step_values, ternary_step_bytes});
        add(scales, bucket, sizeof(float));
        break;
    default: add(scales, bucket, 2 * sizeof(float)); // minmax and onebit
    }
}

// The exact number of values that a topk chunk keeps.
static uint64_t kept_values(const Codec &codec, uint64_t count) {
    const uint64_t wholes = count / whole_share, rest = count % whole_share;
    const uint64_t kept =
        wholes * codec.share + (rest * codec.share + whole_share - 1) / whole_share;
    return kept; // at least one if there are values
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
    if (codec.id == CodecId::topk) {
        layout.kept = kept_values(codec, count);
        layout.indices = align(layout.bytes);
        layout.kept_values = align(layout.indices + layout.kept * sizeof(uint16_t));
        layout.bytes = layout.kept_values + layout.kept * type_bytes(type);
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
    if (codec.id == CodecId::topk) {
        const size_t indices_end = layout.indices + layout.kept * sizeof(uint16_t);
        found[next++] = {end, layout.indices - end};
        found[next] = {indices_end, layout.kept_values - indices_end};
    }
    return found;
}

void clear_gaps(const Codec &codec, const PayloadLayout &layout, std::byte *payload) {
    for (const Gap &gap : gaps(codec, layout))
        std::fill_n(payload + gap.start, gap.bytes, std::byte{0});
}

} // namespace qccl
