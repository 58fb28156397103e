// Computes where the sections of a payload lie, by one rule for all codecs, and checks that a
// payload is such as an encoder writes. The check runs on every chunk that a rank receives.
#include "codec/chunk.hpp"

#include "base/types.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little,
              "the wire is little-endian and read in place");

namespace qccl {

// ---- Where sections lie

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
    const CodecRow &row = codec.row();
    if (row.is_sparse) add(&PayloadLayout::page_counts, topk_page_values, sizeof(uint32_t));
    if (row.has_digits)
        add({&PayloadLayout::digits, bucket, ternary_step_values, ternary_step_bytes});
    if (row.scale_bytes != 0)
        add(&PayloadLayout::scales, row.scale_values != 0 ? row.scale_values : bucket,
            row.scale_bytes);
    if (row.has_bases) add(&PayloadLayout::bases, bucket, sizeof(float));
}

// The exact number of values that a chunk of topk or dummy keeps.
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
        if (!codec.is_relative || count == 0) return layout;
        layout.scales = layout.bytes;
        layout.scale_count = 1;
        layout.bytes += sizeof(float);
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
    if (codec.row().takes(SpecKey::ratio)) layout.kept = kept_values(codec, count);
    if (codec.row().kind == CodecKind::dummy) layout.bytes = layout.kept * type_bytes(type);
    if (codec.row().is_sparse) {
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
    if (codec.row().is_sparse) {
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

// ---- Payloads from outside

namespace {

bool is_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

template <class T> T read(const std::byte *at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Whether a last, incomplete group has zeros where it has no values.
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

// Checks a bucket of `values` values: every byte is below the power of 3 that its digits allow.
bool are_digits_valid(uint64_t values, std::span<const std::byte> bytes) {
    uint64_t from = 0;
    uint32_t limit = 243;
    for (uint64_t row = 5; row-- > 0; limit /= 3) { // bytes with a digit in this row and in all
                                                    // rows below
        const uint64_t start = std::min(values, row * bytes.size());
        const uint64_t to = std::min<uint64_t>(values - start, bytes.size());
        uint8_t strange = 0;
        for (; from < to; from++)
            strange |= static_cast<uint8_t>(std::to_integer<uint32_t>(bytes[from]) >= limit);
        if (strange != 0) return false;
    }
    return is_zero(bytes.subspan(from));
}

bool are_ternary_valid(const Codec &codec, const PayloadLayout &layout,
                       std::span<const std::byte> payload) {
    if (!codec.row().has_digits) return true;
    const uint64_t stride = ternary_bytes(codec.bucket);
    for (uint64_t i = 0; i < layout.scale_count; i++) {
        const uint64_t values = std::min<uint64_t>(codec.bucket, layout.coded - i * codec.bucket);
        if (!are_digits_valid(values,
                              payload.subspan(layout.digits + i * stride, ternary_bytes(values))))
            return false;
    }
    return true;
}

// Whether every page states how many values it keeps, and lists their indices in ascending order.
bool are_pages_valid(const Codec &codec, const PayloadLayout &layout,
                     std::span<const std::byte> payload) {
    if (!codec.row().is_sparse) return true;
    uint64_t seen = 0;
    for (uint64_t begin = 0; begin < layout.coded; begin += topk_page_values) {
        const uint64_t values = std::min(topk_page_values, layout.coded - begin);
        const auto kept = read<uint32_t>(payload.data() + layout.page_counts +
                                         begin / topk_page_values * sizeof(uint32_t));
        if (kept > layout.kept - seen) return false;
        int64_t last = -1;
        for (const uint64_t end = seen + kept; seen < end; seen++) {
            const int64_t index =
                read<uint16_t>(payload.data() + layout.indices + seen * sizeof(uint16_t));
            if (index <= last || index >= static_cast<int64_t>(values)) return false;
            last = index;
        }
    }
    return seen == layout.kept;
}

bool are_gaps_zero(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    for (const Gap &gap : gaps(codec, layout))
        if (!is_zero(payload.subspan(gap.start, gap.bytes))) return false;
    return true;
}

// A valid scale of a block is the canonical NaN, or finite and so small that its lowest code
// decodes to a finite number; a zero is +0. This function and those below have no branches, so that
// the compiler vectorizes the loop over a chunk's scales: the loop runs on every received chunk.
int16_t is_strange_block_scale(uint16_t scale, int16_t limit) {
    constexpr uint16_t nan = 0x7FC0, negative_zero = 0x8000, magnitude = 0x7FFF;
    const bool is_large = static_cast<int16_t>(scale & magnitude) >= limit;
    return (scale != nan) & (is_large | (scale == negative_zero));
}

// A valid minimum and unit of a bucket are both the canonical NaN, or both finite: the unit is +0
// or a positive normal number, and a minimum of zero is +0.
int32_t is_strange_bucket_scale(int32_t minimum, int32_t unit) {
    constexpr int32_t nan = 0x7FC00000, infinity = 0x7F800000, smallest_normal = 0x00800000;
    constexpr int32_t magnitude = 0x7FFFFFFF, negative_zero = -magnitude - 1;
    const bool is_nan = (minimum == nan) & (unit == nan);
    const bool is_minimum = ((minimum & magnitude) < infinity) & (minimum != negative_zero);
    const bool is_unit = (unit == 0) | ((unit >= smallest_normal) & (unit < infinity));
    return !(is_nan | (is_minimum & is_unit));
}

// A valid scale is a power of two under which all elements are finite, or NaN.
uint8_t is_strange_mx_scale(uint8_t scale, uint8_t most) {
    constexpr uint8_t nan = 0xFF;
    return (scale > most) & (scale != nan);
}

// A valid scale of fp8 is the canonical NaN, +0, or a number from the least to `most`.
int16_t is_strange_fp8_scale(uint16_t scale, uint16_t most) {
    constexpr uint16_t nan = 0x7FC0;
    return !((scale == nan) | (scale == 0) | ((scale >= least_scale_bits) & (scale <= most)));
}

// A valid scale is an E4M3 without a sign.
uint8_t is_strange_nvfp4_scale(uint8_t scale) { return scale & 0x80; }

// A valid base is zero, or within the bounds that keep products normal and finite.
int32_t is_strange_nvfp4_base(int32_t base) {
    constexpr int32_t least = 0x05000000, most = 0x79C00000; // 2^-117, 1.5 * 2^116
    return !((base == 0) | ((base >= least) & (base <= most)));
}

// Valid means of a bucket are both the canonical NaN, or both finite: the first is +0 or positive,
// the second +0 or negative.
int32_t are_strange_means(int32_t mean, int32_t negative_mean) {
    constexpr int32_t nan = 0x7FC00000, infinity = 0x7F800000, magnitude = 0x7FFFFFFF;
    const bool is_nan = (mean == nan) & (negative_mean == nan);
    const bool is_mean = (mean >= 0) & (mean < infinity);
    const int32_t size = negative_mean & magnitude;
    const bool is_negative = (negative_mean < 0) & (size != 0) & (size < infinity);
    return !(is_nan | (is_mean & (is_negative | (negative_mean == 0))));
}

// A valid scale is the canonical NaN, or finite and +0 or positive.
int32_t is_strange_terngrad_scale(int32_t scale) {
    constexpr int32_t nan = 0x7FC00000, infinity = 0x7F800000;
    return !((scale == nan) | ((scale >= 0) & (scale < infinity)));
}

// A valid norm is the canonical NaN, +0, or a number from the least to the largest that encoders
// write.
int32_t is_strange_norm(int32_t norm, int32_t least) {
    constexpr int32_t nan = 0x7FC00000;
    const bool is_number = (norm >= least) & (norm <= largest_norm_bits);
    return !((norm == nan) | (norm == 0) | is_number);
}

// A valid step of a grid is +0 or a positive number of 8 significant bits, within the bounds that
// grid_step (kernels/codec/grid.hpp) has.
bool is_strange_step(int32_t step) {
    constexpr int32_t least = 0x03FF0000, most = 0x7BFF0000; // of the bounds 2^-120 and 2^120
    return !(step == 0 || (step >= least && step <= most && (step & 0xFFFF) == 0));
}

// Whether `is_strange(i)` is 0 for every i.
template <class Strange, class IsStrange>
bool are_usual(uint64_t count, Strange, IsStrange &&is_strange) {
    Strange strange = 0;
    for (uint64_t i = 0; i < count; i++) strange |= is_strange(i);
    return strange == 0;
}

bool are_scales_valid(const Codec &codec, const PayloadLayout &layout,
                      std::span<const std::byte> payload) {
    if (layout.scale_count == 0) return true;
    const std::byte *scales = payload.data() + layout.scales;
    const uint64_t count = layout.scale_count;
    switch (codec.row().kind) {
    case CodecKind::plain:
    case CodecKind::cast:
    case CodecKind::topk:
    case CodecKind::tbq:
    case CodecKind::dummy: break; // without scales
    case CodecKind::grid: return !is_strange_step(read<int32_t>(scales));
    case CodecKind::integer: {
        const auto limit = static_cast<int16_t>((255 - (codec.bits - 1)) << 7);
        return are_usual(count, int16_t{}, [=](uint64_t i) {
            return is_strange_block_scale(read<uint16_t>(scales + 2 * i), limit);
        });
    }
    case CodecKind::mx: {
        const auto most = static_cast<uint8_t>(254 - codec.row().element.highest);
        return are_usual(count, uint8_t{}, [=](uint64_t i) {
            return is_strange_mx_scale(read<uint8_t>(scales + i), most);
        });
    }
    case CodecKind::scaled: {
        const uint16_t most = largest_scale_bits(codec.row().element.highest);
        return are_usual(count, int16_t{}, [=](uint64_t i) {
            return is_strange_fp8_scale(read<uint16_t>(scales + 2 * i), most);
        });
    }
    case CodecKind::nvfp4: {
        const std::byte *bases = payload.data() + layout.bases;
        return are_usual(
                   count, uint8_t{},
                   [=](uint64_t i) { return is_strange_nvfp4_scale(read<uint8_t>(scales + i)); }) &&
               are_usual(layout.base_count, int32_t{}, [=](uint64_t i) {
                   return is_strange_nvfp4_base(read<int32_t>(bases + 4 * i));
               });
    }
    case CodecKind::terngrad:
        return are_usual(count, int32_t{}, [=](uint64_t i) {
            return is_strange_terngrad_scale(read<int32_t>(scales + 4 * i));
        });
    case CodecKind::onebit:
        return are_usual(count, int32_t{}, [=](uint64_t i) {
            return are_strange_means(read<int32_t>(scales + 8 * i),
                                     read<int32_t>(scales + 8 * i + 4));
        });
    case CodecKind::norm:
        return are_usual(count, int32_t{}, [=, least = least_norm_bits(codec)](uint64_t i) {
            return is_strange_norm(read<int32_t>(scales + 4 * i), least);
        });
    case CodecKind::minmax:
        return are_usual(count, int32_t{}, [=](uint64_t i) {
            return is_strange_bucket_scale(read<int32_t>(scales + 8 * i),
                                           read<int32_t>(scales + 8 * i + 4));
        });
    }
    return true;
}

} // namespace

Done check_payload(const Codec &codec, const PayloadLayout &layout,
                   std::span<const std::byte> payload) {
    if (codec.is_plain() && layout.scale_count == 0) return {};
    if (!is_padding_zero(layout, codec.bits, payload) || !are_gaps_zero(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: padding is not zero");
    if (!are_pages_valid(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: indices that no encoder writes");
    if (!are_ternary_valid(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: digits that no encoder writes");
    if (!are_scales_valid(codec, layout, payload))
        return Error::make(Code::damaged_data, "chunk: a scale is none that an encoder writes");
    return {};
}

} // namespace qccl
