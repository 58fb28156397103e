// The codecs whose values share scales, each as a form: what a lane learns of its values, how lanes
// put that together, and what scale, code and value come of it. The arithmetic is that of
// the *_block.hpp; a new codec is a new form. T is the accumulator's type.
#pragma once

#include "kernels/batch.hpp"
#include "kernels/gpu_memory.hpp"
#include "kernels/integer_block.hpp"
#include "kernels/minmax_block.hpp"
#include "kernels/mx_block.hpp"

#include <limits>

namespace qccl::QCCL_GPU {

template <class T> struct IntegerForm {
    static constexpr size_t scale_bytes = sizeof(uint16_t);
    using Scale = BlockScale;

    // A value's magnitude, above that its sign: one number whose order is that of extreme_of, and
    // in which what is not finite is above all.
    struct Extremes {
        uint32_t key;

        QCCL_DEVICE static Extremes none() { return {0}; }
        QCCL_DEVICE void add(T x) {
            const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x));
            merge({(bits << 1 | bits >> 31) ^ 1});
        }
        QCCL_DEVICE void merge(Extremes other) { key = key > other.key ? key : other.key; }
        QCCL_DEVICE void merge_lane(unsigned mask) { merge({shuffle_xor(key, mask)}); }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            constexpr uint32_t infinity = 0x7F800000;
            const uint32_t pattern = key ^ 1;
            return block_scale(std::bit_cast<float>(pattern >> 1 | pattern << 31),
                               key >> 1 < infinity, sink.bits);
        }
    };

    QCCL_DEVICE static Scale load_scale(const std::byte *scales, uint64_t bucket) {
        return block_scale(load_one<uint16_t>(scales + bucket * scale_bytes));
    }
    QCCL_DEVICE static void store_scale(std::byte *scales, uint64_t bucket, const Scale &scale) {
        store_one(scales + bucket * scale_bytes, scale.wire);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        const int32_t code = block_code(static_cast<float>(x), scale, sink.bits, draw);
        return static_cast<uint32_t>(code) & ((1U << sink.bits) - 1); // two's complement
    }

    // What a decoder needs of a scale.
    struct Step {
        float scale;
    };
    QCCL_DEVICE static Step load_step(const std::byte *scales, uint64_t bucket) {
        return {widen<Bfloat>(load_one<uint16_t>(scales + bucket * scale_bytes))};
    }
    QCCL_DEVICE static T value(uint32_t code, Step step, const Operand &source) {
        const uint32_t sign = 1U << (source.bits - 1);
        const auto number = static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
        return static_cast<T>(block_value(number, step.scale));
    }
};

template <class T> struct MinmaxForm {
    static constexpr size_t scale_bytes = 2 * sizeof(float);
    using Scale = BucketScale<T>;

    // What is not finite makes the least value -infinity. The sign of a zero does not matter: the
    // least value's is dropped by its scale, and the range is the same.
    struct Extremes {
        T low, high;

        QCCL_DEVICE static Extremes none() {
            return {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity()};
        }
        QCCL_DEVICE void add(T x) {
            low = least(low, is_finite(x) ? x : -std::numeric_limits<T>::infinity());
            high = greatest(high, x);
        }
        QCCL_DEVICE void merge(Extremes other) {
            low = least(low, other.low);
            high = greatest(high, other.high);
        }
        QCCL_DEVICE void merge_lane(unsigned mask) {
            merge({shuffle_xor(low, mask), shuffle_xor(high, mask)});
        }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            return bucket_scale(low, high, is_finite(low), sink.bits);
        }
    };

    QCCL_DEVICE static Scale load_scale(const std::byte *scales, uint64_t bucket) {
        const Step step = load_step(scales, bucket);
        return bucket_scale<T>(step.minimum, step.unit);
    }
    QCCL_DEVICE static void store_scale(std::byte *scales, uint64_t bucket, const Scale &scale) {
        const float wire[2] = {scale.minimum, scale.unit};
        store(scales + bucket * scale_bytes, wire);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        return bucket_code(x, scale, sink.bits, draw);
    }

    struct Step {
        float minimum, unit;
    };
    QCCL_DEVICE static Step load_step(const std::byte *scales, uint64_t bucket) {
        float wire[2];
        load(scales + bucket * scale_bytes, wire);
        return {wire[0], wire[1]};
    }
    QCCL_DEVICE static T value(uint32_t code, Step step, const Operand &) {
        return bucket_value<T>(code, step.minimum, step.unit);
    }
};

// The largest magnitude, as its pattern: what is not finite is above all.
template <class T> struct Magnitude {
    uint32_t largest;

    QCCL_DEVICE static Magnitude none() { return {0}; }
    QCCL_DEVICE void add(T x) {
        merge({std::bit_cast<uint32_t>(static_cast<float>(x)) & ~0U >> 1});
    }
    QCCL_DEVICE void merge(Magnitude other) {
        largest = largest > other.largest ? largest : other.largest;
    }
    QCCL_DEVICE void merge_lane(unsigned mask) { merge({shuffle_xor(largest, mask)}); }
};

// Of elements F.
template <class F, class T> struct MxForm {
    using Scale = MxScale;

    struct Extremes : Magnitude<T> {
        QCCL_DEVICE static Extremes none() { return {Magnitude<T>::none()}; }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            return mx_scale<F>(this->largest, sink.rounds_up);
        }
    };

    QCCL_DEVICE static void store_scale(std::byte *scales, uint64_t block, const Scale &scale) {
        store_one(scales + block, scale.wire);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &, Draw draw) {
        return mx_code<F>(static_cast<float>(x), scale, draw);
    }

    using Step = uint8_t;
    QCCL_DEVICE static Step load_step(const std::byte *scales, uint64_t block) {
        return load_one<uint8_t>(scales + block);
    }
    QCCL_DEVICE static T value(uint32_t code, Step step, const Operand &) {
        return static_cast<T>(mx_value<F>(code, step));
    }
};
template <class T> using Mxfp8e4m3Form = MxForm<E4m3, T>;
template <class T> using Mxfp6e2m3Form = MxForm<E2m3, T>;
template <class T> using Mxfp4Form = MxForm<E2m1, T>;

} // namespace qccl::QCCL_GPU
