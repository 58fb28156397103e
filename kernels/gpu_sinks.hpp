// Where a fold's values go: memory, or the codes and scales of a chunk. Codes are made of a row of
// groups at a time: all lanes of a warp call, with what they hold of it. Knows no sources.
#pragma once

#include "kernels/gpu_sources.hpp"
#include "kernels/philox.hpp"

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

// What a warp makes codes of.
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
    // All of it, for all lanes of the warp.
    QCCL_DEVICE bool is_whole() const { return (number + 1) * row_values <= tensor.count; }
};

// The draws of values from `place` on in the tensor: of one block of the generator, or of two where
// the tensor's places in the caller's are no multiples of eight.
class Draws {
public:
    template <class T>
    QCCL_DEVICE Draws(const Row<T> &row, uint64_t place)
        : key_(row.tensor.noise.key), call_(row.call), first_(row.tensor.noise.first_index + place),
          words_(noise_block(key_, call_, first_ / philox_draws)) {}

    // Of the value i places behind the first; asked for in order.
    QCCL_DEVICE Draw next(unsigned i) {
        const auto number = static_cast<uint32_t>((first_ + i) % philox_draws);
        if (i != 0 && number == 0) words_ = noise_block(key_, call_, first_ / philox_draws + 1);
        return {draw_of(words_, number)};
    }

private:
    const uint64_t key_, call_, first_;
    std::array<uint32_t, 4> words_;
};

// Calls code(half, i, draw) for each value, in order; those that the tensor does not have get 0.
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

// With one scale for all of the lane's values.
template <class Form, class T>
QCCL_DEVICE void put_scaled(const Row<T> &row, const typename Form::Scale &scale) {
    put_codes(row, [&](unsigned half, unsigned i, Draw draw) {
        return Form::code(row.values[half][i], scale, row.sink, draw);
    });
}

// With scales that are in the payload already, and a bucket for each value.
template <class Form, class T> QCCL_DEVICE void put_each(const Row<T> &row) {
    const uint64_t last = row.tensor.count - 1;
    Octet<uint32_t> codes[2];
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const uint64_t place = row.spot(half).place();
        Draws draws(row, place);
#pragma unroll 1
        for (unsigned i = 0; i < 8; i++) {
            const uint64_t at = place + i;
            const auto scale = Form::load_scale(row.sink, at < last ? at : last);
            const Draw drawn = draws.next(i);
            const uint32_t code = Form::code(pick(row.values[half], i), scale, row.sink,
                                             row.sink.is_stochastic ? drawn : Draw{});
            set(codes[half], i, at <= last ? code : 0);
        }
    }
    store_codes(row.sink, group_of(row.number), row.is_inside(), codes);
}

// With scales that are in the payload already.
template <class Form, class T> QCCL_DEVICE void put_measured(const Row<T> &row) {
    if (!has_bucket_per_group(row.sink)) return put_each<Form>(row);
    typename Form::Scale scale;
    if (row.is_inside()) scale = Form::load_scale(row.sink, row.first());
    put_scaled<Form>(row, scale);
}

// Buckets of 32, 64, ... values, up to a row.
template <class Form, class T> QCCL_DEVICE void put_fused(const Row<T> &row) {
    auto extremes = Form::Extremes::none();
#pragma unroll
    for (unsigned half = 0; half < 2; half++) {
        const unsigned there =
            row.is_whole() ? 8 : present(row.spot(half).place(), row.tensor.count);
        for_each_value([&](unsigned i) {
            if (i < there) extremes.add(row.values[half][i]);
        });
    }
    const unsigned team = row.sink.bucket / 32 * columns; // lanes that have a bucket together
    for (unsigned mask = 1; mask < team; mask *= 2) extremes.merge_lane(mask);
    const auto scale = extremes.scale(row.sink);
    if (row.is_inside() && lane() % team == 0) Form::store_scale(row.sink, row.first(), scale);
    put_scaled<Form>(row, scale);
}

// Blocks of half a group, with bases that are in the payload already.
template <class Form, class T> QCCL_DEVICE void put_based(const Row<T> &row) {
    typename Form::Base base;
    if (row.is_inside()) base = Form::load_base(row.sink, row.first());
    typename Form::Scale scales[2];
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
            store_one(Form::block_scale_at(row.sink, place), scales[half].wire);
    }
    put_codes(row, [&](unsigned half, unsigned i, Draw draw) {
        return Form::code(row.values[half][i], scales[half], row.sink, draw);
    });
}

template <class Form, class T> QCCL_DEVICE void put_coded(const Row<T> &row) {
    if constexpr (requires { typename Form::Base; })
        return put_based<Form>(row);
    else if constexpr (
        requires { &Form::load_scale; } && !requires { typename Form::Extremes; })
        return put_measured<Form>(row);
    else if constexpr (requires { &Form::load_scale; })
        return row.sink.is_measured ? put_measured<Form>(row) : put_fused<Form>(row);
    else
        return put_fused<Form>(row); // blocks are never larger than a row
}

} // namespace qccl::QCCL_GPU
