// Where a fold puts its values: into memory, or into the codes and scales of a chunk. Codes are
// made for a row of groups at a time: all lanes of the warp call with the values that they hold of
// the row.
#pragma once

#include "kernels/codec/code_rounding.hpp"
#include "kernels/gpu/gpu_sources.hpp"

namespace qccl::QCCL_GPU {

template <class T>
QCCL_DEVICE void put_plain(const Operand &sink, Spot spot, uint64_t count, const Octet<T> &values) {
    with_bits<T>(sink.type, [&]<class Bits>(Bits) {
        Octet<Bits> bits;
        narrow_values<T>(sink.type, sink.saturates, values, bits);
        store_eight(sink.at, spot.place(), count, bits);
    });
}

// ---- Codes

// A row that a warp encodes.
template <class T> struct Row {
    const Tensor &tensor;
    const Operand &sink;
    const uint64_t call; // number of the call, for the noise
    const uint64_t number;
    Octet<T> values[2];

    QCCL_DEVICE Row(const Tensor &of, const Operand &into, uint64_t base_call, uint64_t row)
        : tensor(of), sink(into), call(of.noise.call + base_call), number(row) {}

    QCCL_DEVICE Spot spot(unsigned half) const { return {group_of(number), half}; }
    QCCL_DEVICE uint64_t first() const { return group_of(number) * 32; } // of the lane's group
    QCCL_DEVICE bool is_inside() const { return first() < tensor.count; }
    // Returns true if all values of the row exist, in all lanes of the warp.
    QCCL_DEVICE bool is_whole() const { return (number + 1) * row_values <= tensor.count; }
};

// The noise draws of eight values from `place` on. They come from one block of the generator, or
// from two if the tensor does not start at a multiple of eight in the caller's tensor.
class Draws {
public:
    template <class T>
    QCCL_DEVICE Draws(const Row<T> &row, uint64_t place)
        : key_(row.tensor.noise.key), call_(row.call), first_(row.tensor.noise.first_index + place),
          words_(noise_block(key_, call_, first_ / philox_draws)) {}

    // Returns the draw of the value i places behind the first. Must be called in order.
    QCCL_DEVICE Draw next(unsigned i) {
        const auto number = static_cast<uint32_t>((first_ + i) % philox_draws);
        if (i != 0 && number == 0) words_ = noise_block(key_, call_, first_ / philox_draws + 1);
        return {draw_of(words_, number)};
    }

private:
    const uint64_t key_, call_, first_;
    std::array<uint32_t, 4> words_;
};

// Stores the results of code(half, i, draw), called for each value in order. Values that the tensor
// does not have get code 0.
template <class T, class Code> QCCL_DEVICE void put_codes(const Row<T> &row, Code &&code) {
    Octet<uint32_t> codes[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t place = row.spot(half).place();
        const unsigned there = present(place, row.tensor.count);
        const auto put = [&](unsigned i, Draw draw) {
            const uint32_t found = code(half, i, draw);
            codes[half][i] = i < there ? found : 0;
        };
        if (row.sink.is_stochastic) {
            Draws draws(row, place);
#pragma unroll
            for (unsigned i = 0; i < 8; i++) put(i, draws.next(i));
        } else {
#pragma unroll
            for (unsigned i = 0; i < 8; i++) put(i, Draw{});
        }
    }
    store_codes(row.sink, group_of(row.number), row.is_inside(), codes);
}

// Encodes with one scale for all of the lane's values.
template <class CodecTraits, class T>
QCCL_DEVICE void put_scaled(const Row<T> &row, const typename CodecTraits::Scale &scale) {
    put_codes(row, [&](unsigned half, unsigned i, Draw draw) {
        return CodecTraits::code(row.values[half][i], scale, row.sink, draw);
    });
}

// Encodes with scales that are in the payload already, and looks up the bucket of each value.
template <class CodecTraits, class T> QCCL_DEVICE void put_each(const Row<T> &row) {
    const uint64_t last = row.tensor.count - 1;
    Octet<uint32_t> codes[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t place = row.spot(half).place();
        Draws draws(row, place);
#pragma unroll 1
        for (unsigned i = 0; i < 8; i++) {
            const uint64_t at = place + i;
            const auto scale = CodecTraits::load_scale(row.sink, at < last ? at : last);
            const Draw drawn = draws.next(i);
            const uint32_t code = CodecTraits::code(pick(row.values[half], i), scale, row.sink,
                                                    row.sink.is_stochastic ? drawn : Draw{});
            set(codes[half], i, at <= last ? code : 0);
        }
    }
    store_codes(row.sink, group_of(row.number), row.is_inside(), codes);
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
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const unsigned there =
            row.is_whole() ? 8 : present(row.spot(half).place(), row.tensor.count);
        for_each_value([&](unsigned i) {
            if (i < there) extremes.add(row.values[half][i]);
        });
    }
    const unsigned team = row.sink.bucket / 32 * columns; // lanes that share a bucket
    for (unsigned mask = 1; mask < team; mask *= 2) extremes.merge_lane(mask);
    const auto scale = extremes.scale(row.sink);
    if (row.is_inside() && lane() % team == 0)
        CodecTraits::store_scale(row.sink, row.first(), scale);
    put_scaled<CodecTraits>(row, scale);
}

// Computes the scales of blocks of half a group and encodes with them. The bases are in the payload
// already.
template <class CodecTraits, class T> QCCL_DEVICE void put_based(const Row<T> &row) {
    typename CodecTraits::Base base;
    if (row.is_inside()) base = CodecTraits::load_base(row.sink, row.first());
    typename CodecTraits::Scale scales[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t place = row.spot(half).place();
        const unsigned there = present(place, row.tensor.count);
        auto magnitude = Magnitude<T>::none();
        for_each_value([&](unsigned i) {
            if (i < there) magnitude.add(row.values[half][i]);
        });
        magnitude.merge_lane(1);
        scales[half] = nvfp4_scale(magnitude.largest, base, row.sink.rounds_up);
        if (column() == 0 && there != 0)
            store_one(CodecTraits::block_scale_at(row.sink, place), scales[half].wire);
    }
    put_codes(row, [&](unsigned half, unsigned i, Draw draw) {
        return CodecTraits::code(row.values[half][i], scales[half], row.sink, draw);
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
