// Where a fold takes its values from: memory, or the codes and scales of a chunk. A lane takes all
// of its values of a row at once, in the accumulator's type T, so that it waits once for all of
// them. Values that the tensor does not have are unspecified.
#pragma once

#include "kernels/gpu/gpu_codec_traits.hpp"
#include "kernels/gpu/gpu_planes.hpp"

namespace qccl::QCCL_GPU {

template <class T, class Layout>
QCCL_DEVICE void take_plain(const Operand &source, const Place<Layout> &place,
                            Held<Layout, T> &values) {
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        Held<Layout, Bits> bits;
        load_runs(source.at, place, bits);
        widen_values(source.type, bits, values);
    });
}

// Calls load(run, i, place) for a lane's values, one at a time, with places inside the tensor.
template <class Layout, class Load>
QCCL_DEVICE void for_each_slowly(const Place<Layout> &place, Load &&load) {
#pragma unroll 1
    for (unsigned value = 0; value < lane_values; value++) {
        const unsigned run = value / Layout::length, i = value % Layout::length;
        const unsigned offset = Layout::offset(run) + i;
        if (offset < place.left) load(run, i, place.first + offset);
    }
}

template <class CodecTraits, class T, class Layout>
QCCL_DEVICE void take_coded(const Operand &source, const Place<Layout> &place,
                            Held<Layout, T> &values) {
    using Step = typename CodecTraits::Step;
    constexpr bool may_be_wide = requires { &CodecTraits::wide_value; };
    const auto wide_code = [](uint32_t low, uint32_t high, unsigned i) {
        return byte_of(low, i) | byte_of(high, i) << 8;
    };
    const std::byte *const buckets = part_of(source, CodecTraits::bucket_part);
    HeldCodes<Layout> codes;
    load_codes(source, place, codes);
    if (source.bucket % Layout::length == 0) {
        const RunBuckets<Layout> bucket(source, place);
        const std::byte *const first = buckets + bucket.first * CodecTraits::bucket_bytes;
        Step steps[Layout::runs] = {};
#pragma unroll
        for (unsigned run = 0; run < Layout::runs; run++)
            if (place.has(run))
                steps[run] = CodecTraits::load_step(first + uint64_t{bucket.behind[run]} *
                                                                CodecTraits::bucket_bytes,
                                                    source, place.start(run));
        if constexpr (may_be_wide)
            if (source.bits > 8)
                return for_each_value<Layout>([&](unsigned run, unsigned i) {
                    const uint32_t code =
                        wide_code(codes.low[run][i / 4], codes.high[run][i / 4], i % 4);
                    values[run][i] = CodecTraits::wide_value(code, steps[run], source);
                });
        for_each_value<Layout>([&](unsigned run, unsigned i) {
            values[run][i] = CodecTraits::value(codes.low[run][i / 4], i % 4, steps[run], source);
        });
        return;
    }
    // The buckets do not consist of whole runs.
    for_each_slowly(place, [&](unsigned run, unsigned i, uint64_t at) {
        const Step step = CodecTraits::load_step(
            buckets + bucket_of(source, at) * CodecTraits::bucket_bytes, source, at);
        const uint32_t low = pick(codes.low, run, i / 4);
        if constexpr (may_be_wide) {
            const uint32_t code = wide_code(low, pick(codes.high, run, i / 4), i % 4);
            set(values, run, i, CodecTraits::wide_value(code, step, source));
        } else {
            set(values, run, i, CodecTraits::value(low, i % 4, step, source));
        }
    });
}

// Takes values of terngrad. A byte holds five digits, of values that lie ternary_bytes of their
// bucket apart.
template <class T, class Layout>
QCCL_DEVICE void take_ternary(const Operand &source, const Place<Layout> &place,
                              Held<Layout, T> &values) {
    for_each_slowly(place, [&](unsigned run, unsigned i, uint64_t at) {
        const Ternary ternary = ternary_of(source, bucket_of(source, at));
        const uint64_t inner = source.begin + at - ternary.first;
        auto digits = load_one<uint8_t>(ternary.packed + inner % ternary.bytes);
        for (uint64_t k = inner / ternary.bytes; k > 0; k--) digits /= 3;
        const auto scale = load_one<float>(scale_at<float>(source, at));
        set(values, run, i, static_cast<T>(terngrad_value(digits % 3U, scale)));
    });
}

// Returns how many values the pages before `page` keep. The lanes of a warp add the counts up
// together, so all of them must call.
QCCL_DEVICE uint64_t kept_before(const Operand &source, uint32_t page) {
    const std::byte *const counts = part_of(source, ChunkPart::page_counts);
    uint64_t kept = 0;
#pragma unroll 2
    for (uint32_t i = lane(); i < page / 4; i += lanes) {
        uint32_t four[4];
        load(counts + uint64_t{i} * sizeof four, four);
#pragma unroll
        for (const uint32_t number : four) kept += number;
    }
    if (lane() < page % 4)
        kept += load_one<uint32_t>(counts + uint64_t{page / 4 * 4 + lane()} * sizeof(uint32_t));
    for (unsigned mask = 1; mask < lanes; mask *= 2) kept += shuffle_xor(kept, mask);
    return kept;
}

QCCL_DEVICE uint32_t at_most(uint32_t a, uint32_t b) { return a < b ? a : b; }

// Returns the first number from `low` on for which is_before is false, or `limit`. It is probably
// less than `reach` behind `low`.
template <class IsBefore>
QCCL_DEVICE uint32_t first_not_before(uint32_t low, uint32_t limit, uint32_t reach,
                                      IsBefore &&is_before) {
    uint32_t high = at_most(limit, low + reach);
    for (; high < limit && is_before(high); high = at_most(limit, low + reach)) {
        low = high + 1;
        reach *= 2;
    }
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (is_before(middle))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// Takes the few values that topk keeps, and zeros. All lanes of the warp must call, for one row. No
// value beyond the kept ones is read, whatever the payload's pages and indices contain.
template <class T, class Layout>
QCCL_DEVICE void take_kept(const Operand &source, const Place<Layout> &place,
                           Held<Layout, T> &values) {
    // The row's first page; a row touches two at most. It is computed when it is needed, because
    // here, beside the values, registers are scarce. So numbers of 32 bits are used, which count
    // from the page's first kept value.
    const auto first_page = [&] {
        return static_cast<uint32_t>((source.begin + place.first - Layout::first()) /
                                     topk_page_values);
    };
    uint64_t base = kept_before(source, first_page()); // the page's first kept value
    for_each_value<Layout>([&](unsigned run, unsigned i) { values[run][i] = T(0); });
    const auto number_of = [&](uint32_t page) {
        return load_one<uint32_t>(part_of(source, ChunkPart::page_counts) +
                                  uint64_t{page} * sizeof(uint32_t));
    };
    const auto index = [&](uint32_t number) -> uint32_t {
        return load_one<uint16_t>(part_of(source, ChunkPart::indices) +
                                  (base + number) * sizeof(uint16_t));
    };
    uint32_t before = topk_page_values; // where in the page the run before starts
    uint32_t end = 0, low = 0, reach = 0;
#pragma unroll 1
    for (unsigned run = 0; run < Layout::runs && place.has(run); run++) {
        const uint64_t at = source.begin + place.start(run);
        // The page has `inside` values before the run, so no more kept values precede the run.
        const auto inside = static_cast<uint32_t>(at % topk_page_values);
        if (inside <= before) { // in a page that no run before lies in
            const auto page = static_cast<uint32_t>(at / topk_page_values);
            if (page != first_page()) base += number_of(page - 1);
            const uint64_t kept = source.kept > base ? source.kept - base : 0;
            end = at_most(number_of(page), kept < ~0U ? static_cast<uint32_t>(kept) : ~0U);
            low = 0;
            reach = inside;
        }
        before = inside;
        // Finds the first kept value of the page that is not before the run: for the first run
        // among all, for the others near the one before.
        low = first_not_before(low, at_most(end, inside), reach,
                               [&](uint32_t number) { return index(number) < inside; });
        reach = 1;
        with_bits<T>(source.type, [&]<class Bits>(Bits) {
            const std::byte *const kept = part_of(source, ChunkPart::kept_values);
            const uint32_t stop = at_most(end, low + Layout::length);
#pragma unroll 1
            for (uint32_t k = low; k < stop; k++) {
                const uint32_t i = index(k) - inside;
                if (i >= Layout::length) return;
                const auto bits = load_one<Bits>(kept + (base + k) * sizeof(Bits));
                set(values, run, i, widened<T>(source.type, bits));
            }
        });
    }
}

// Takes a lane's values of any source. The tensor has at least one value.
template <class T, class Layout>
QCCL_DEVICE void take(const Operand &source, const Place<Layout> &place, Held<Layout, T> &values) {
    if constexpr (std::is_floating_point_v<T>) {
        switch (source.codec) {
        case CodecId::integer: return take_coded<IntegerTraits<T>, T>(source, place, values);
        case CodecId::minmax: return take_coded<MinmaxTraits<T>, T>(source, place, values);
        case CodecId::mxfp8e4m3: return take_coded<Mxfp8e4m3Traits<T>, T>(source, place, values);
        case CodecId::mxfp6e2m3: return take_coded<Mxfp6e2m3Traits<T>, T>(source, place, values);
        case CodecId::mxfp4: return take_coded<Mxfp4Traits<T>, T>(source, place, values);
        case CodecId::nvfp4: return take_coded<Nvfp4Traits<T>, T>(source, place, values);
        case CodecId::onebit: return take_coded<OnebitTraits<T>, T>(source, place, values);
        case CodecId::terngrad: return take_ternary<T>(source, place, values);
        case CodecId::topk: return take_kept<T>(source, place, values);
        default: break;
        }
    }
    take_plain<T>(source, place, values);
}

} // namespace qccl::QCCL_GPU
