// The codecs whose values share scales, each as a traits class. The class defines what a lane
// learns from its values, how lanes merge that, how scale, code and value follow from it, and where
// the scale lies. The arithmetic is that of the *_block.hpp files; a new codec is a new class. T is
// the accumulator's type. `place` is the index of a value, counted from the operand's first value.
// Folds and measuring kernels use these classes.
#pragma once

#include "codec/chunk.hpp"
#include "device/batch.hpp"
#include "kernels/codec/grid.hpp"
#include "kernels/codec/norm_block.hpp"
#include "kernels/codec/small_float_block.hpp"
#include "kernels/codec/summed_block.hpp"
#include "kernels/codec/threshold_block.hpp"
#include "kernels/codec/uniform_block.hpp"
#include "kernels/gpu/gpu_lane.hpp"

#include <limits>

namespace qccl::QCCL_GPU {

QCCL_DEVICE std::byte *part_of(const Operand &operand, ChunkPart part) {
    return operand.at + operand.section[static_cast<size_t>(part)];
}
QCCL_DEVICE uint64_t bucket_of(const Operand &operand, uint64_t place) {
    if (operand.bucket == 0) return 0;
    const uint64_t at = operand.begin + place;
    // A GPU divides with dozens of instructions, so powers of two shift.
    if (operand.bucket_shift != 0) return at >> operand.bucket_shift;
    return at / operand.bucket;
}
// Returns true if the values of a group share a bucket.
QCCL_DEVICE bool has_bucket_per_group(const Operand &operand) { return operand.bucket % 32 == 0; }

// The buckets of a lane's runs; a run lies in one bucket. Only the first bucket's number takes
// arithmetic of 64 bits.
template <class Layout> struct RunBuckets {
    uint64_t first = 0;
    uint32_t behind[Layout::runs] = {}; // how many buckets behind the first

    QCCL_DEVICE RunBuckets(const Operand &operand, const Place<Layout> &place) {
        if (operand.bucket == 0) return;
        first = bucket_of(operand, place.first);
        const auto inside =
            static_cast<uint32_t>(operand.begin + place.first - first * operand.bucket);
        const auto count = [&](auto &&bucket_of_place) {
#pragma unroll
            for (unsigned run = 1; run < Layout::runs; run++)
                behind[run] = bucket_of_place(inside + Layout::offset(run));
        };
        if (operand.bucket_shift != 0)
            count([&](uint32_t at) { return at >> operand.bucket_shift; });
        else
            count([&](uint32_t at) { return at / operand.bucket; });
    }
};

// Returns the address of a value's bucket scale; a scale takes sizeof(WireScale) bytes.
template <class WireScale> QCCL_DEVICE std::byte *scale_at(const Operand &operand, uint64_t place) {
    return part_of(operand, ChunkPart::scales) + bucket_of(operand, place) * sizeof(WireScale);
}

// ---- Codes, which lie in the bytes of words (gpu_lane.hpp)

// Returns byte i of a word, less `offset`, as a float. The byte becomes the last places of a float
// that is otherwise 2^23, so it needs no conversion.
QCCL_DEVICE float number_of_byte(uint32_t word, unsigned i, float offset) {
    return std::bit_cast<float>(bytes_of(word, 0x4B000000, i, 4, 4, 7)) - (0x1p23F + offset);
}
QCCL_DEVICE uint32_t byte_of(uint32_t word, unsigned i) { return bytes_of(word, 0, i, 4, 4, 4); }

// ---- Codecs

template <class T> struct IntegerTraits {
    using Scale = BlockScale;
    using Computed = float; // the precision in which values are rotated

    // A value's magnitude followed by a bit that is 1 if the value is not negative: one number
    // whose order is that of extreme_of. Values that are not finite are above all others.
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
            const uint32_t pattern = key ^ 1;
            return block_scale(std::bit_cast<float>(pattern >> 1 | pattern << 31),
                               key >> 1 < float_infinity, sink.bits);
        }
    };

    QCCL_DEVICE static Scale load_scale(const Operand &sink, uint64_t place) {
        return block_scale(load_one<uint16_t>(scale_at<uint16_t>(sink, place)));
    }
    QCCL_DEVICE static void store_scale(const Operand &sink, uint64_t place, const Scale &scale) {
        store_one(scale_at<uint16_t>(sink, place), scale.wire);
    }
    QCCL_DEVICE static void store_measured(const Operand &sink, uint64_t place,
                                           const Extremes &extremes) {
        store_scale(sink, place, extremes.scale(sink));
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        return block_bits(static_cast<float>(x), scale, sink.bits, draw);
    }

    // What a decoder reads for a bucket, or for a part of one.
    using Step = uint16_t;
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(uint16_t);
    // `of_bucket` is where the payload's bucket_part has the bucket of the value.
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &, uint64_t) {
        return load_one<uint16_t>(of_bucket);
    }
    QCCL_DEVICE static T value(uint32_t low, unsigned i, Step step, const Operand &source) {
        const uint32_t sign = 1U << (source.bits - 1);
        const float number = number_of_byte(low ^ in_each_byte(sign), i, static_cast<float>(sign));
        return static_cast<T>(block_product(number, widen_number<Bfloat>(step)));
    }
    QCCL_DEVICE static T wide_value(uint32_t code, Step step, const Operand &source) {
        return static_cast<T>(block_product(number(code, source), widen_number<Bfloat>(step)));
    }
    QCCL_DEVICE static T dithered(uint32_t code, uint32_t k, Step step, const Operand &source) {
        return static_cast<T>(block_dithered(number(code, source), source.bits,
                                             dither_shift<float>(k), widen_number<Bfloat>(step)));
    }
    QCCL_DEVICE static float number(uint32_t code, const Operand &source) {
        const uint32_t sign = 1U << (source.bits - 1);
        return static_cast<float>(static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign));
    }
};

template <class T> struct MinmaxTraits {
    using WireScale = float[2]; // minimum and unit
    using Scale = BucketScale<T>;
    using Computed = T;

    // The sign of a zero does not matter: the scale drops the sign of the least value, and the
    // range is the same.
    struct Extremes {
        T low, high;
        T nothing; // 0, or NaN if a value is not finite

        QCCL_DEVICE static Extremes none() {
            return {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(), 0};
        }
        QCCL_DEVICE void add(T x) {
            low = least(x, low);
            high = greatest(x, high);
            nothing += x - x;
        }
        QCCL_DEVICE void merge(Extremes other) {
            low = least(other.low, low);
            high = greatest(other.high, high);
            nothing += other.nothing;
        }
        QCCL_DEVICE void merge_lane(unsigned mask) {
            merge({shuffle_xor(low, mask), shuffle_xor(high, mask), shuffle_xor(nothing, mask)});
        }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            return bucket_scale(low, high, nothing == 0, sink.bits);
        }
    };

    QCCL_DEVICE static Scale load_scale(const Operand &sink, uint64_t place) {
        const Step step = load_step(scale_at<WireScale>(sink, place), sink, place);
        return bucket_scale<T>(step.minimum, step.unit);
    }
    QCCL_DEVICE static void store_scale(const Operand &sink, uint64_t place, const Scale &scale) {
        const WireScale wire = {scale.minimum, scale.unit};
        store(scale_at<WireScale>(sink, place), wire);
    }
    QCCL_DEVICE static void store_measured(const Operand &sink, uint64_t place,
                                           const Extremes &extremes) {
        store_scale(sink, place, extremes.scale(sink));
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        return bucket_bits(x, scale, sink.bits, draw);
    }

    struct Step {
        float minimum, unit;
    };
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(WireScale);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &, uint64_t) {
        WireScale wire;
        load(of_bucket, wire);
        return {wire[0], wire[1]};
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &) {
        return bucket_point<T>(number_of_byte(codes, i, 0), step.minimum, step.unit);
    }
    QCCL_DEVICE static T dithered(uint32_t code, uint32_t k, Step step, const Operand &) {
        return bucket_dithered<T>(static_cast<float>(code), dither_shift<T>(k), step.minimum,
                                  step.unit);
    }
};

// The range of a chunk, of which `bound` makes the step of its grid. Values have no codes.
template <class T> struct RangeTraits {
    using Extremes = typename MinmaxTraits<T>::Extremes;

    QCCL_DEVICE static void store_measured(const Operand &sink, uint64_t,
                                           const Extremes &extremes) {
        store_one(part_of(sink, ChunkPart::scales),
                  range_step(extremes.low, extremes.high, extremes.nothing == 0,
                             std::bit_cast<float>(sink.clip)));
    }
};

// The largest magnitude as its bit pattern. Values that are not finite are above all others.
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

// The MX codec with elements of format F.
template <class F, class T> struct MxTraits {
    using Scale = MxScale;

    struct Extremes : Magnitude<T> {
        QCCL_DEVICE static Extremes none() { return {Magnitude<T>::none()}; }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            return mx_scale<F>(this->largest, sink.rounds_up);
        }
    };

    QCCL_DEVICE static void store_scale(const Operand &sink, uint64_t place, const Scale &scale) {
        store_one(scale_at<uint8_t>(sink, place), scale.wire);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &, Draw draw) {
        return element_code<F>(static_cast<float>(x) * scale.inverse, draw);
    }

    using Step = uint8_t;
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(uint8_t);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &, uint64_t) {
        return load_one<uint8_t>(of_bucket);
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &) {
        return static_cast<T>(widen_number<F>(byte_of(codes, i)) * mx_power(step));
    }
};
template <class T> using Mxfp8e4m3Traits = MxTraits<E4m3, T>;
template <class T> using Mxfp6e2m3Traits = MxTraits<E2m3, T>;
template <class T> using Mxfp4Traits = MxTraits<E2m1, T>;

// fp8 with a block. Both formats share the kernels.
template <class T> struct Fp8Traits {
    using Scale = Fp8Scale;

    struct Extremes : Magnitude<T> {
        QCCL_DEVICE static Extremes none() { return {Magnitude<T>::none()}; }
        QCCL_DEVICE Scale scale(const Operand &sink) const {
            Scale scale;
            with_fp8(sink.codec, [&]<class F>(F) { scale = fp8_scale<F>(this->largest); });
            return scale;
        }
    };

    QCCL_DEVICE static void store_scale(const Operand &sink, uint64_t place, const Scale &scale) {
        store_one(scale_at<uint16_t>(sink, place), scale.wire);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        const float v = static_cast<float>(x) * scale.inverse;
        uint32_t code = 0;
        with_fp8(sink.codec, [&]<class F>(F) { code = element_code<F>(v, draw); });
        return code;
    }

    using Step = uint16_t;
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(uint16_t);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &, uint64_t) {
        return load_one<uint16_t>(of_bucket);
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &source) {
        float number = 0;
        with_fp8(source.codec, [&]<class F>(F) { number = widen_number<F>(byte_of(codes, i)); });
        return static_cast<T>(number * widen_number<Bfloat>(step));
    }
};

// Blocks of 16 values, half a group. Their scales are relative to the base of their bucket, which
// is in the payload before the block is encoded.
template <class T> struct Nvfp4Traits {
    using Base = Nvfp4Base;
    using Scale = Nvfp4Scale;

    QCCL_DEVICE static std::byte *base_at(const Operand &operand, uint64_t place) {
        return part_of(operand, ChunkPart::bases) + bucket_of(operand, place) * sizeof(float);
    }
    QCCL_DEVICE static std::byte *block_scale_at(const Operand &operand, uint64_t place) {
        return part_of(operand, ChunkPart::scales) + (operand.begin + place) / nvfp4_block_values;
    }
    // The largest magnitude of the blocks that are finite. A warp reads whole blocks at a time, of
    // which each lane has `count` values.
    struct Extremes : Magnitude<T> {
        QCCL_DEVICE static Extremes none() { return {Magnitude<T>::none()}; }
        template <unsigned count>
        QCCL_DEVICE void add_lanes(const T (&values)[count], unsigned there) {
            auto block = Magnitude<T>::none();
#pragma unroll
            for (unsigned i = 0; i < count; i++)
                if (i < there) block.add(values[i]);
#pragma unroll
            for (unsigned mask = 1; mask < nvfp4_block_values / count; mask *= 2)
                block.merge_lane(mask);
            if (block.largest < float_infinity) this->merge(block);
        }
    };
    QCCL_DEVICE static void store_measured(const Operand &sink, uint64_t place,
                                           const Extremes &extremes) {
        store_one(base_at(sink, place), nvfp4_base(extremes.largest).wire);
    }
    QCCL_DEVICE static Base load_base(const Operand &sink, uint64_t place) {
        return nvfp4_base_of(load_one<float>(base_at(sink, place)));
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &, Draw draw) {
        return element_code<E2m1>(static_cast<float>(x) * scale.inverse, draw);
    }

    struct Step {
        uint8_t scale;
        float base;
    };
    static constexpr ChunkPart bucket_part = ChunkPart::bases;
    static constexpr unsigned bucket_bytes = sizeof(float);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &source,
                                      uint64_t place) {
        return {load_one<uint8_t>(block_scale_at(source, place)), load_one<float>(of_bucket)};
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &) {
        const float unit = widen_number<E4m3>(step.scale) * step.base;
        return static_cast<T>(widen_number<E2m1>(byte_of(codes, i)) * unit);
    }
};

// Encodes only with means that are already in the payload.
template <class T> struct OnebitTraits {
    using WireScale = float[2]; // means of codes 0 and 1

    struct Scale {
        bool has_codes = false;
    };
    QCCL_DEVICE static Scale load_scale(const Operand &sink, uint64_t place) {
        return {is_finite(load_step(scale_at<WireScale>(sink, place), sink, place).mean)};
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &, const Operand &, Draw) {
        return onebit_code(static_cast<float>(x));
    }

    struct Step {
        float mean, negative_mean;
    };
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(WireScale);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &, uint64_t) {
        WireScale wire;
        load(of_bucket, wire);
        return {wire[0], wire[1]};
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &) {
        return static_cast<T>(onebit_value(codes >> (8 * i) & 1, step.mean, step.negative_mean));
    }
};

// Encodes only with norms that are already in the payload.
template <class T> struct NormTraits {
    using Scale = NormScale;

    QCCL_DEVICE static NormGrid grid(const Operand &operand) {
        return {!operand.is_exponential, operand.bits};
    }
    QCCL_DEVICE static Scale load_scale(const Operand &sink, uint64_t place) {
        return norm_scale(load_one<float>(scale_at<float>(sink, place)), grid(sink));
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &scale, const Operand &sink, Draw draw) {
        return norm_bits(static_cast<float>(x), scale, grid(sink), draw);
    }

    using Step = float; // the factor of the norm
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = sizeof(float);
    QCCL_DEVICE static Step load_step(const std::byte *of_bucket, const Operand &source, uint64_t) {
        return grid(source).factor(load_one<float>(of_bucket));
    }
    QCCL_DEVICE static T value(uint32_t low, unsigned i, Step step, const Operand &source) {
        const uint32_t sign = 1U << (source.bits - 1);
        const auto code = static_cast<int32_t>(byte_of(low, i) ^ sign) - static_cast<int32_t>(sign);
        return static_cast<T>(norm_product(code, step, grid(source)));
    }
};

// Without scales: the threshold is the codec's.
template <class T> struct TbqTraits {
    struct EveryCode {
        bool has_codes = true;
    };
    using Scale = EveryCode;
    QCCL_DEVICE static Scale load_scale(const Operand &, uint64_t) { return {}; }
    QCCL_DEVICE static float threshold(const Operand &operand) {
        return std::bit_cast<float>(operand.clip);
    }
    QCCL_DEVICE static uint32_t code(T x, const Scale &, const Operand &sink, Draw) {
        return tbq_code(static_cast<float>(x), threshold(sink));
    }

    using Step = float;
    static constexpr ChunkPart bucket_part = ChunkPart::scales;
    static constexpr unsigned bucket_bytes = 0;
    QCCL_DEVICE static Step load_step(const std::byte *, const Operand &source, uint64_t) {
        return threshold(source);
    }
    QCCL_DEVICE static T value(uint32_t codes, unsigned i, Step step, const Operand &) {
        return static_cast<T>(tbq_value(byte_of(codes, i), step));
    }
};

// terngrad has no traits class: its digits are packed bucket by bucket.
struct Ternary {
    std::byte *packed;
    uint64_t first, values, bytes; // the bucket's first value in its chunk, its values, its bytes
};
QCCL_DEVICE Ternary ternary_of(const Operand &operand, uint64_t bucket) {
    const uint64_t first = bucket * operand.bucket, rest = operand.coded - first;
    const uint64_t values = rest < operand.bucket ? rest : operand.bucket;
    return {part_of(operand, ChunkPart::digits) + bucket * ternary_bytes(operand.bucket), first,
            values, ternary_bytes(values)};
}

} // namespace qccl::QCCL_GPU
