// Where a fold's values come from: memory, or the codes and scales of a chunk. An octet at a time,
// in the accumulator's type T. Knows no sinks.
#pragma once

#include "kernels/gpu_forms.hpp"
#include "kernels/gpu_planes.hpp"

namespace qccl::QCCL_GPU {

template <class T>
QCCL_DEVICE void take_plain(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    with_bits<T>(source.type, [&]<class Bits>(Bits) {
        Octet<Bits> bits;
        load_eight(source.at, spot.place(), count, bits);
        widen_values(source.type, bits, values);
    });
}

template <class Form, class T>
QCCL_DEVICE void take_coded(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    const uint64_t last = count - 1;
    if (spot.group > last / 32) spot.group = last / 32; // stands for those behind it
    Octet<uint32_t> codes;
    load_codes(source, spot, codes);
    if (has_bucket_per_group(source)) {
        const uint64_t first = spot.group * 32 + spot.half * 16; // of the half
        const auto step = Form::load_step(source, first < last ? first : last);
        for_each_value([&](unsigned i) { values[i] = Form::value(codes[i], step, source); });
        return;
    }
#pragma unroll 1
    for (unsigned i = 0; i < 8; i++) {
        const uint64_t place = spot.place() + i < last ? spot.place() + i : last;
        const auto step = Form::load_step(source, place);
        set(values, i, Form::value(pick(codes, i), step, source));
    }
}

// Five digits to a byte: those of values that lie ternary_bytes of their bucket apart.
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

// Values beyond the `count` that there are, at least one, are anything.
template <class T>
QCCL_DEVICE void take(const Operand &source, Spot spot, uint64_t count, Octet<T> &values) {
    if constexpr (std::is_floating_point_v<T>) {
        switch (source.codec) {
        case CodecId::integer: return take_coded<IntegerForm<T>, T>(source, spot, count, values);
        case CodecId::minmax: return take_coded<MinmaxForm<T>, T>(source, spot, count, values);
        case CodecId::mxfp8e4m3:
            return take_coded<Mxfp8e4m3Form<T>, T>(source, spot, count, values);
        case CodecId::mxfp6e2m3:
            return take_coded<Mxfp6e2m3Form<T>, T>(source, spot, count, values);
        case CodecId::mxfp4: return take_coded<Mxfp4Form<T>, T>(source, spot, count, values);
        case CodecId::nvfp4: return take_coded<Nvfp4Form<T>, T>(source, spot, count, values);
        case CodecId::onebit: return take_coded<OnebitForm<T>, T>(source, spot, count, values);
        case CodecId::terngrad: return take_ternary<T>(source, spot, count, values);
        default: break;
        }
    }
    take_plain<T>(source, spot, count, values);
}

} // namespace qccl::QCCL_GPU
