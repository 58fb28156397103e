// Where a fold takes its values from and where it puts them: memory, or the codes and scales of a
// chunk. A lane takes all of its values of a row at once, in the accumulator's type T, so that it
// waits once for all of them. Values that the tensor does not have are unspecified. Codes are made
// for a row of groups at a time: all lanes of the warp call with the values that they hold of the
// row.
#pragma once

#include "kernels/codec/code_rounding.hpp"
#include "kernels/gpu/gpu_codec_traits.hpp"
#include "kernels/gpu/gpu_lane.hpp"
#include "kernels/gpu/gpu_rotation.hpp"

#include <array>

namespace qccl::QCCL_GPU {

// Returns what is added to the call numbers of all noise.
QCCL_DEVICE uint64_t base_call(const Batch &batch) {
    return batch.call != nullptr ? *batch.call : 0;
}

// ---- Sources

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

// Takes values of which the noise of their encoder is subtracted. `base_call` is added to its call
// number. Values of one block of the generator follow each other, so few blocks are made twice.
template <class CodecTraits, class T, class Layout>
QCCL_DEVICE void take_dithered(const Operand &source, uint64_t base_call,
                               const Place<Layout> &place, const HeldCodes<Layout> &codes,
                               Held<Layout, T> &values) {
    const std::byte *const buckets = part_of(source, CodecTraits::bucket_part);
    const Noise noise = source.noise();
    uint64_t made = ~uint64_t{0};
    std::array<uint32_t, 4> words = {};
    for_each_slowly(place, [&](unsigned run, unsigned i, uint64_t at) {
        const uint64_t index = noise.first_index + at;
        if (index / philox_draws != made) {
            made = index / philox_draws;
            words = noise_block(noise.key, noise.call + base_call, made);
        }
        const uint32_t k = draw_of(words, static_cast<uint32_t>(index % philox_draws));
        const auto step = CodecTraits::load_step(
            buckets + bucket_of(source, at) * CodecTraits::bucket_bytes, source, at);
        const uint32_t code = byte_of(pick(codes.low, run, i / 4), i % 4) |
                              byte_of(pick(codes.high, run, i / 4), i % 4) << 8;
        set(values, run, i, CodecTraits::dithered(code, k, step, source));
    });
}

// Kernels without has_dither know neither dithered sources nor rotated ones, and so need fewer
// registers.
template <class CodecTraits, class T, bool has_dither, class Layout>
QCCL_DEVICE void take_coded(const Operand &source, [[maybe_unused]] uint64_t base_call,
                            const Place<Layout> &place, Held<Layout, T> &values) {
    using Step = typename CodecTraits::Step;
    constexpr bool may_be_wide = requires { &CodecTraits::wide_value; };
    const auto wide_code = [](uint32_t low, uint32_t high, unsigned i) {
        return byte_of(low, i) | byte_of(high, i) << 8;
    };
    const std::byte *const buckets = part_of(source, CodecTraits::bucket_part);
    HeldCodes<Layout> codes;
    load_codes(source, place, codes);
    if constexpr (has_dither && requires { &CodecTraits::dithered; })
        if (source.is_dithered)
            return take_dithered<CodecTraits, T>(source, base_call, place, codes, values);
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

// Takes a lane's values of any source. The tensor has at least one value. `base_call` is added to
// the call number of its noise.
template <class T, bool has_dither, class Layout>
QCCL_DEVICE void take(const Operand &source, uint64_t base_call, const Place<Layout> &place,
                      Held<Layout, T> &values) {
    if constexpr (std::is_floating_point_v<T>) {
        switch (source.codec) {
        case CodecId::integer:
            take_coded<IntegerTraits<T>, T, has_dither>(source, base_call, place, values);
            if constexpr (has_dither)
                if (source.is_rotated()) rotate_row<float, true>(source.rotation(), place, values);
            return;
        case CodecId::minmax:
            take_coded<MinmaxTraits<T>, T, has_dither>(source, base_call, place, values);
            if constexpr (has_dither)
                if (source.is_rotated()) rotate_row<T, true>(source.rotation(), place, values);
            return;
        case CodecId::mxfp8e4m3:
            return take_coded<Mxfp8e4m3Traits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::mxfp6e2m3:
            return take_coded<Mxfp6e2m3Traits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::mxfp4:
            return take_coded<Mxfp4Traits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::fp8e4m3: // with a block
        case CodecId::fp8e5m2:
            return take_coded<Fp8Traits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::nvfp4:
            return take_coded<Nvfp4Traits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::norm:
            return take_coded<NormTraits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::onebit:
            return take_coded<OnebitTraits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::tbq:
            return take_coded<TbqTraits<T>, T, has_dither>(source, base_call, place, values);
        case CodecId::terngrad: return take_ternary<T>(source, place, values);
        case CodecId::topk:
        case CodecId::dgc: return take_kept<T>(source, place, values);
        case CodecId::dummy: {
            Place<Layout> there = place;
            there.left = at_most(place.left, remaining(place.first, source.kept, row_values));
            return take_plain<T>(source, there, values);
        }
        case CodecId::none: // casts, too, are plain values of another type
        case CodecId::lossless:
        case CodecId::bound:
        case CodecId::fp16:
        case CodecId::bf16: break;
        }
    }
    take_plain<T>(source, place, values);
}

// ---- Sinks

template <class T, class Layout>
QCCL_DEVICE void put_plain(const Operand &sink, const Place<Layout> &place,
                           const Held<Layout, T> &values) {
    with_bits<T>(sink.type, [&]<class Bits>(Bits) {
        Held<Layout, Bits> bits;
        narrow_values(sink.type, sink.saturates, values, bits);
        store_runs(sink.at, place, bits);
    });
}

// ---- Codes

// A row that a warp encodes.
template <class T> struct Row {
    const Batch &batch;
    const Tensor &tensor;
    const Operand &sink;
    const Place<Grouped> place;
    Held<Grouped, T> values;

    QCCL_DEVICE Row(const Batch &launched, const Tensor &of, const Operand &into, uint64_t number)
        : batch(launched), tensor(of), sink(into), place(number, of.count) {}

    // Returns the number of the call, for the noise.
    QCCL_DEVICE uint64_t call() const { return tensor.noise.call + base_call(batch); }

    QCCL_DEVICE uint64_t group() const { return place.group(0); }
    QCCL_DEVICE uint64_t first() const { return group() * 32; } // of the lane's group
    QCCL_DEVICE bool is_inside() const { return first() < tensor.count; }

    // Calls see(run, x) for the lane's values that exist.
    template <class See> QCCL_DEVICE void for_each(See &&see) const {
        if (place.is_whole())
            for_each_value<Grouped>([&](unsigned run, unsigned i) { see(run, values[run][i]); });
        else
            for_each_value<Grouped>([&](unsigned run, unsigned i) {
                if (i < place.present(run)) see(run, values[run][i]);
            });
    }
};

// The noise draws of eight values as a block of the generator has them, two in a word.
using Draws = std::array<uint32_t, philox_draws / 2>;

// Returns the noise draws of eight values from `place` on. They come from one block of the
// generator, or from two if the tensor does not start at a multiple of eight in the caller's
// tensor.
template <class T> QCCL_DEVICE Draws draw_noise(const Row<T> &row, uint64_t place) {
    const uint64_t key = row.tensor.noise.key, call = row.call();
    const uint64_t first = row.tensor.noise.first_index + place;
    const Draws words = noise_block(key, call, first / philox_draws);
    const auto skipped = static_cast<uint32_t>(first % philox_draws);
    if (skipped == 0) return words;
    const Draws next = noise_block(key, call, first / philox_draws + 1);
    Octet<uint32_t> all = {words[0], words[1], words[2], words[3],
                           next[0],  next[1],  next[2],  next[3]};
    // Skips four draws, two and one.
    const auto chosen = [](bool second, uint32_t a, uint32_t b) { return second ? b : a; };
#pragma unroll
    for (unsigned i = 0; i < 6; i++) all[i] = chosen((skipped & 4) != 0, all[i], all[i + 2]);
#pragma unroll
    for (unsigned i = 0; i < 5; i++) all[i] = chosen((skipped & 2) != 0, all[i], all[i + 1]);
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
        all[i] = chosen((skipped & 1) != 0, all[i], all[i] >> 16 | all[i + 1] << 16);
    return {all[0], all[1], all[2], all[3]};
}

// Stores values of 8 or 16 bits, rounded with noise.
template <class T> QCCL_DEVICE void put_by_chance(const Row<T> &row) {
    with_bits<T>(row.sink.type, [&]<class Bits>(Bits) {
        if constexpr (!std::is_same_v<Bits, T>) {
            Held<Grouped, Bits> bits;
            with_format<Bits>(row.sink.type, [&]<class F>(F) {
#pragma unroll
                for (unsigned run = 0; run < Grouped::runs; run++) {
                    const Draws draws = draw_noise(row, row.place.start(run));
#pragma unroll
                    for (unsigned i = 0; i < Grouped::length; i++)
                        bits[run][i] = static_cast<Bits>(
                            narrow_by_chance<F>(row.values[run][i], draw_of(draws, i)));
                }
            });
            store_runs(row.sink.at, row.place, bits);
        }
    });
}

// Packs the codes of a run. Values that the tensor does not have get code 0.
QCCL_DEVICE void pack(const Octet<uint32_t> &found, unsigned there, unsigned run,
                      HeldCodes<Grouped> &codes) {
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        const uint32_t first = bytes_of(found[4 * i], found[4 * i + 1], 0, 1, 4, 5);
        const uint32_t second = bytes_of(found[4 * i + 2], found[4 * i + 3], 0, 1, 4, 5);
        codes.low[run][i] = bytes_of(first, second, 0, 2, 4, 6);
        codes.high[run][i] = bytes_of(first, second, 1, 3, 5, 7);
    }
    if (there == 8) return;
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        const unsigned before = 4 * i;
        const uint32_t known = there >= before + 4 ? ~0U
                               : there > before    ? (1U << (8 * (there - before))) - 1
                                                   : 0;
        codes.low[run][i] &= known;
        codes.high[run][i] &= known;
    }
}

// Stores the results of code(run, i, draw), or 0 if has_codes(run) is false. The low 16 bits of a
// result count.
template <class T, class HasCodes, class Code>
QCCL_DEVICE void put_codes(const Row<T> &row, HasCodes &&has_codes, Code &&code) {
    HeldCodes<Grouped> codes;
#pragma unroll
    for (unsigned run = 0; run < 2; run++) {
        Octet<uint32_t> found;
        if (row.sink.is_stochastic || row.sink.is_dithered) {
            const Draws draws = draw_noise(row, row.place.start(run));
            const bool is_dithered = row.sink.is_dithered;
#pragma unroll
            for (unsigned i = 0; i < 8; i++)
                found[i] = code(run, i, Draw{draw_of(draws, i), is_dithered});
        } else {
#pragma unroll
            for (unsigned i = 0; i < 8; i++) found[i] = code(run, i, Draw{});
        }
        pack(found, row.place.present(run), run, codes);
        const uint32_t mask = has_codes(run) ? ~0U : 0;
#pragma unroll
        for (unsigned i = 0; i < 2; i++) {
            codes.low[run][i] &= mask;
            codes.high[run][i] &= mask;
        }
    }
    store_codes(row.sink, row.group(), row.is_inside(), codes);
}

// Encodes with one scale for all of the lane's values.
template <class CodecTraits, class T>
QCCL_DEVICE void put_scaled(const Row<T> &row, const typename CodecTraits::Scale &scale) {
    put_codes(
        row, [&](unsigned) { return scale.has_codes; },
        [&](unsigned run, unsigned i, Draw draw) {
            return CodecTraits::code(row.values[run][i], scale, row.sink, draw);
        });
}

// Encodes with scales that are in the payload already, and looks up the bucket of each value.
template <class CodecTraits, class T> QCCL_DEVICE void put_each(const Row<T> &row) {
    const uint64_t last = row.tensor.count - 1;
    HeldCodes<Grouped> codes;
#pragma unroll
    for (unsigned run = 0; run < 2; run++) {
        Octet<uint32_t> found = {};
        const Draws draws = draw_noise(row, row.place.start(run));
#pragma unroll 1
        for (unsigned i = 0; i < 8; i++) {
            const uint64_t at = row.place.start(run) + i;
            const auto scale = CodecTraits::load_scale(row.sink, at < last ? at : last);
            const bool is_drawn = row.sink.is_stochastic || row.sink.is_dithered;
            const Draw draw{is_drawn ? draw_of(draws, i) : Draw::nearest, row.sink.is_dithered};
            const uint32_t code =
                CodecTraits::code(pick(row.values[run], i), scale, row.sink, draw);
            set(found, i, scale.has_codes ? code : 0);
        }
        pack(found, row.place.present(run), run, codes);
    }
    store_codes(row.sink, row.group(), row.is_inside(), codes);
}

// Encodes with scales that are in the payload already.
template <class CodecTraits, class T> QCCL_DEVICE void put_measured(const Row<T> &row) {
    if (!has_bucket_per_group(row.sink)) return put_each<CodecTraits>(row);
    typename CodecTraits::Scale scale;
    if (row.is_inside()) scale = CodecTraits::load_scale(row.sink, row.first());
    put_scaled<CodecTraits>(row, scale);
}

// Computes the scales and encodes with them. Buckets have 32, 64, ... values, up to a row.
template <class CodecTraits, class T> QCCL_DEVICE void put_fused(const Row<T> &row) {
    auto extremes = CodecTraits::Extremes::none();
    row.for_each([&](unsigned, T x) { extremes.add(x); });
    // Lanes that share a bucket; a power of two, like the bucket.
    const unsigned team = row.sink.bucket / 32 * columns;
    for (unsigned mask = 1; mask < team; mask *= 2) extremes.merge_lane(mask);
    const auto scale = extremes.scale(row.sink);
    if (row.is_inside() && (lane() & (team - 1)) == 0)
        CodecTraits::store_scale(row.sink, row.first(), scale);
    put_scaled<CodecTraits>(row, scale);
}

// Computes the scales of blocks of half a group and encodes with them. The bases are in the payload
// already.
template <class CodecTraits, class T> QCCL_DEVICE void put_based(const Row<T> &row) {
    typename CodecTraits::Base base;
    if (row.is_inside()) base = CodecTraits::load_base(row.sink, row.first());
    Magnitude<T> magnitudes[2] = {Magnitude<T>::none(), Magnitude<T>::none()};
    row.for_each([&](unsigned run, T x) { magnitudes[run].add(x); });
    typename CodecTraits::Scale scales[2];
#pragma unroll
    for (unsigned run = 0; run < 2; run++) {
        magnitudes[run].merge_lane(1);
        scales[run] = nvfp4_scale(magnitudes[run].largest, base, row.sink.rounds_up);
        if (column() == 0 && row.place.has(run))
            store_one(CodecTraits::block_scale_at(row.sink, row.place.start(run)),
                      scales[run].wire);
    }
    put_codes(
        row, [&](unsigned run) { return scales[run].inverse != 0; },
        [&](unsigned run, unsigned i, Draw draw) {
            return CodecTraits::code(row.values[run][i], scales[run], row.sink, draw);
        });
}

template <class CodecTraits, class T> QCCL_DEVICE void put_coded(const Row<T> &row) {
    if constexpr (requires { typename CodecTraits::Base; })
        return put_based<CodecTraits>(row);
    else if constexpr (
        requires { &CodecTraits::load_scale; } && !requires { typename CodecTraits::Extremes; })
        return put_measured<CodecTraits>(row);
    else if constexpr (requires { &CodecTraits::load_scale; })
        return row.sink.is_measured ? put_measured<CodecTraits>(row) : put_fused<CodecTraits>(row);
    else
        return put_fused<CodecTraits>(row); // blocks are never larger than a row
}

} // namespace qccl::QCCL_GPU
