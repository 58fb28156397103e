// Where a fold puts its values: into memory, or into the codes and scales of a chunk. Codes are
// made for a row of groups at a time: all lanes of the warp call with the values that they hold of
// the row.
#pragma once

#include "kernels/codec/code_rounding.hpp"
#include "kernels/gpu/gpu_sources.hpp"

#include <array>

namespace qccl::QCCL_GPU {

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
    QCCL_DEVICE uint64_t call() const {
        return tensor.noise.call + (batch.call != nullptr ? *batch.call : 0);
    }

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
        if (row.sink.is_stochastic) {
            const Draws draws = draw_noise(row, row.place.start(run));
#pragma unroll
            for (unsigned i = 0; i < 8; i++) found[i] = code(run, i, Draw{draw_of(draws, i)});
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
            const Draw draw{row.sink.is_stochastic ? draw_of(draws, i) : Draw::nearest};
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
