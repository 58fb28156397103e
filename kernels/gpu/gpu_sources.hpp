// Where a fold takes its values from: memory, or the codes and scales of a chunk. Values are taken
// an octet at a time, in the accumulator's type T.
#pragma once

#include "kernels/gpu/gpu_codec_traits.hpp"
#include "kernels/gpu/gpu_planes.hpp"

namespace qccl::QCCL_GPU {

template <class T>
QCCL_DEVICE void take_plain(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        Octet<Bits> bits;
        load_eight(source.at, spot.place(), count, bits);
        widen_values(source.type, bits, values);
    });
}

template <class CodecTraits, class T>
QCCL_DEVICE void take_coded(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    const uint64_t last = count - 1;
    if (spot.group > last / 32) spot.group = last / 32; // groups behind the last read the last
    Octet<uint32_t> codes;
    load_codes(source, spot, codes);
    if (has_bucket_per_group(source)) {
        const uint64_t first = spot.group * 32 + spot.half * 16; // first value of the half
        const auto step = CodecTraits::load_step(source, first < last ? first : last);
        for_each_value([&](unsigned i) { values[i] = CodecTraits::value(codes[i], step, source); });
        return;
    }
#pragma unroll 1
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t place = spot.place() + i < last ? spot.place() + i : last;
        const auto step = CodecTraits::load_step(source, place);
        set(values, i, CodecTraits::value(pick(codes, i), step, source));
    }
}

// Takes values of terngrad. A byte holds five digits, of values that lie ternary_bytes of their
// bucket apart.
template <class T>
QCCL_DEVICE void take_ternary(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    const uint64_t last = count - 1;
#pragma unroll 1
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t place = spot.place() + i < last ? spot.place() + i : last;
        const Ternary ternary = ternary_of(source, bucket_of(source, place));
        const uint64_t at = source.begin + place - ternary.first;
        auto digits = load_one<uint8_t>(ternary.packed + at % ternary.bytes);
        for (uint64_t k = at / ternary.bytes; k > 0; k--) digits /= 3;
        const auto scale = load_one<float>(scale_at<float>(source, place));
        set(values, i, static_cast<T>(terngrad_value(digits % 3U, scale)));
    }
}

// Returns how many values the pages before `page` keep. The lanes of a warp add the counts up
// together, so all of them must call.
QCCL_DEVICE uint64_t kept_before(const Operand &source, uint64_t page) {
    const std::byte *const counts = part_of(source, ChunkPart::page_counts);
    uint64_t kept = 0;
    for (uint64_t i = lane(); i < page / 4; i += lanes) {
        uint32_t four[4];
        load(counts + i * sizeof four, four);
#pragma unroll
        for (const uint32_t number : four) kept += number;
    }
    if (lane() < page % 4)
        kept += load_one<uint32_t>(counts + (page / 4 * 4 + lane()) * sizeof(uint32_t));
    for (unsigned mask = 1; mask < lanes; mask *= 2) kept += shuffle_xor(kept, mask);
    return kept;
}

// Takes the few values that topk keeps, and zeros. All lanes of the warp must call, for one row. No
// value beyond the kept ones is read, whatever the payload's pages and indices contain.
template <class T>
QCCL_DEVICE void take_kept(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    const uint64_t row = source.begin + (spot.group - lane() / columns) * 32;
    const uint64_t place = source.begin + spot.place();
    const uint64_t first_page = row / topk_page_values, page = place / topk_page_values;
    uint64_t low = kept_before(source, first_page);
    for_each_value([&](unsigned i) { values[i] = T(0); });
    if (spot.place() >= count) return;
    const auto number_of = [&](uint64_t of) {
        return load_one<uint32_t>(part_of(source, ChunkPart::page_counts) + of * sizeof(uint32_t));
    };
    const auto index = [&](uint64_t at) {
        return load_one<uint16_t>(part_of(source, ChunkPart::indices) + at * sizeof(uint16_t));
    };
    const auto at_most = [](uint64_t a, uint64_t b) { return a < b ? a : b; };
    if (page != first_page) low += number_of(first_page);
    const uint64_t end = at_most(low + number_of(page), source.kept);
    // Finds the first kept value of the page that is not before the octet. The page has `inside`
    // values before the octet, so no more kept values precede the octet.
    const auto inside = static_cast<uint32_t>(place % topk_page_values);
    for (uint64_t high = at_most(end, low + inside); low < high;) {
        const uint64_t middle = (low + high) / 2;
        if (index(middle) < inside)
            low = middle + 1;
        else
            high = middle;
    }
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        const std::byte *const kept = part_of(source, ChunkPart::kept_values);
        const uint64_t stop = at_most(end, low + 8);
#pragma unroll 1
        for (; low < stop; low++) {
            const uint32_t i = index(low) - inside;
            if (i >= 8) return;
            const Bits bits[1] = {load_one<Bits>(kept + low * sizeof(Bits))};
            T value[1];
            widen_values(source.type, bits, value);
            set(values, i, value[0]);
        }
    });
}

// Takes an octet of any source. `count`, at least 1, values exist; values beyond them are
// unspecified.
template <class T>
QCCL_DEVICE void take(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    if constexpr (std::is_floating_point_v<T>) {
        switch (source.codec) {
        case CodecId::integer: return take_coded<IntegerTraits<T>, T>(source, spot, count, values);
        case CodecId::minmax: return take_coded<MinmaxTraits<T>, T>(source, spot, count, values);
        case CodecId::mxfp8e4m3:
            return take_coded<Mxfp8e4m3Traits<T>, T>(source, spot, count, values);
        case CodecId::mxfp6e2m3:
            return take_coded<Mxfp6e2m3Traits<T>, T>(source, spot, count, values);
        case CodecId::mxfp4: return take_coded<Mxfp4Traits<T>, T>(source, spot, count, values);
        case CodecId::nvfp4: return take_coded<Nvfp4Traits<T>, T>(source, spot, count, values);
        case CodecId::onebit: return take_coded<OnebitTraits<T>, T>(source, spot, count, values);
        case CodecId::terngrad: return take_ternary<T>(source, spot, count, values);
        case CodecId::topk: return take_kept<T>(source, spot, count, values);
        default: break;
        }
    }
    take_plain<T>(source, spot, count, values);
}

} // namespace qccl::QCCL_GPU
