// The scalar reference of each kind of codec, called through its CodecFamily: the codecs whose
// blocks share a scale (`int b`, `minmax`, the MX codecs, fp8 with a block and `nvfp4`), and those
// that keep little of each value or only few values (`onebit`, `terngrad`, `norm` and `topk`). topk
// finds its threshold digit by digit, from the highest down.

#include "kernels/codec/norm_block.hpp"
#include "kernels/codec/reference.hpp"
#include "kernels/codec/small_float_block.hpp"
#include "kernels/codec/summed_block.hpp"
#include "kernels/codec/threshold_block.hpp"
#include "kernels/codec/uniform_block.hpp"

namespace qccl {

// ---- int b

namespace {

BlockScale scale_of_block(unsigned bits, DataType in, const void *src, uint64_t begin,
                          uint64_t end) {
    float extreme = 0;
    bool are_finite = true;
    for (uint64_t i = begin; i < end; i++) {
        const float x = block_input(in, src, i);
        are_finite = are_finite && is_finite(x);
        if (are_finite) extreme = extreme_of(extreme, x);
    }
    return block_scale(extreme, are_finite, bits);
}

void encode_integer(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                    std::byte *payload) {
    const uint64_t block = bucket_values(range), first = range.begin, end = coded_end(range);
    const unsigned bits = range.codec->bits;
    BlockScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % block == 0) {
            scale = scale_of_block(bits, in, src, i - first, std::min(i + block, end) - first);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        const int32_t code =
            block_code(block_input(in, src, i - first), scale, bits, draw_of(range, noise, i));
        return static_cast<uint32_t>(code) & ((1U << bits) - 1); // two's complement
    });
}

void decode_integer(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                    double *values) {
    const uint32_t sign = 1U << (range.codec->bits - 1);
    for (size_t i = 0; i < count; i++) {
        const auto scale =
            load_bits<uint16_t>(payload + range.layout->scales, (first + i) / bucket_values(range));
        const uint32_t code = read_code(range, payload, first + i);
        const int32_t number = static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
        const float unit = widen<Bfloat>(scale);
        if (!range.codec->dithers()) {
            values[i] = block_value(number, unit);
            continue;
        }
        const auto shift = dither_shift<float>(draw_of(range, range.noise, first + i).k);
        values[i] =
            canonical(block_dithered(static_cast<float>(number), range.codec->bits, shift, unit));
    }
}

} // namespace

const CodecFamily integer_family{.encode = encode_integer, .decode = decode_integer};

// ---- minmax

namespace {

template <class T>
BucketScale<T> scale_of_bucket(unsigned bits, DataType in, const void *src, uint64_t begin,
                               uint64_t end) {
    T low = load_as<T>(in, src, begin), high = low;
    bool are_finite = true;
    for (uint64_t i = begin; i < end; i++) {
        const T x = load_as<T>(in, src, i);
        are_finite = are_finite && is_finite(x);
        low = minimum(low, x);
        high = maximum(high, x);
    }
    return bucket_scale(low, high, are_finite, bits);
}

template <class T>
void encode_minmax_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                      std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    const unsigned bits = range.codec->bits;
    BucketScale<T> scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            scale = scale_of_bucket<T>(bits, in, src, i - first, std::min(i + bucket, end) - first);
            store_bits(payload + range.layout->scales, i / bucket * 2, scale.minimum);
            store_bits(payload + range.layout->scales, i / bucket * 2 + 1, scale.unit);
        }
        return bucket_code(load_as<T>(in, src, i - first), scale, bits, draw_of(range, noise, i));
    });
}

void encode_minmax(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    if (range.type == DataType::float64)
        encode_minmax_as<double>(range, noise, in, src, payload);
    else
        encode_minmax_as<float>(range, noise, in, src, payload);
}

template <class T> T minmax_value(uint32_t code, Draw draw, float minimum, float unit) {
    if (!draw.is_dither) return bucket_value<T>(code, minimum, unit);
    return canonical(
        bucket_dithered<T>(static_cast<float>(code), dither_shift<T>(draw.k), minimum, unit));
}

void decode_minmax(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                   double *values) {
    const std::byte *scales = payload + range.layout->scales;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bucket = (first + i) / bucket_values(range);
        const auto minimum = load_bits<float>(scales, bucket * 2),
                   unit = load_bits<float>(scales, bucket * 2 + 1);
        const uint32_t code = read_code(range, payload, first + i);
        const Draw draw = range.codec->dithers() ? draw_of(range, range.noise, first + i) : Draw();
        values[i] = range.type == DataType::float64
                        ? minmax_value<double>(code, draw, minimum, unit)
                        : minmax_value<float>(code, draw, minimum, unit);
    }
}

} // namespace

const CodecFamily minmax_family{.encode = encode_minmax, .decode = decode_minmax};

// ---- MX

namespace {

template <class F>
void encode_mx_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    const uint64_t first = range.begin, end = coded_end(range), block = range.codec->bucket;
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    MxScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % block == 0) {
            scale = mx_scale<F>(
                largest_magnitude(in, src, i - first, std::min(i + block, end) - first), rounds_up);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        return mx_code<F>(block_input(in, src, i - first), scale, draw_of(range, noise, i));
    });
}

void encode_mx(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    with_element(*range.codec,
                 [&]<class F>(F) { encode_mx_as<F>(range, noise, in, src, payload); });
}

void decode_mx(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
               double *values) {
    const std::byte *scales = payload + range.layout->scales;
    with_element(*range.codec, [&]<class F>(F) {
        for (size_t i = 0; i < count; i++)
            values[i] = mx_value<F>(read_code(range, payload, first + i),
                                    load_bits<uint8_t>(scales, (first + i) / range.codec->bucket));
    });
}

} // namespace

const CodecFamily mx_family{.encode = encode_mx, .decode = decode_mx};

// ---- fp8 with a block

namespace {

void encode_scaled(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const uint64_t first = range.begin, end = coded_end(range), block = range.codec->bucket;
    with_fp8(range.codec->id, [&]<class F>(F) {
        Fp8Scale scale;
        encode_groups(range, payload, [&](uint64_t i) {
            if (i % block == 0) {
                scale = fp8_scale<F>(
                    largest_magnitude(in, src, i - first, std::min(i + block, end) - first));
                store_bits(payload + range.layout->scales, i / block, scale.wire);
            }
            return fp8_code<F>(block_input(in, src, i - first), scale, draw_of(range, noise, i));
        });
    });
}

void decode_scaled(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                   double *values) {
    const std::byte *scales = payload + range.layout->scales;
    with_fp8(range.codec->id, [&]<class F>(F) {
        for (size_t i = 0; i < count; i++)
            values[i] =
                fp8_value<F>(read_code(range, payload, first + i),
                             load_bits<uint16_t>(scales, (first + i) / range.codec->bucket));
    });
}

} // namespace

const CodecFamily scaled_family{.encode = encode_scaled, .decode = decode_scaled};

// ---- nvfp4

namespace {

constexpr uint64_t block = nvfp4_block_values;

Nvfp4Base base_of_bucket(DataType in, const void *src, uint64_t begin, uint64_t end) {
    uint32_t largest = 0;
    for (uint64_t i = begin; i < end; i += block)
        if (const uint32_t here = largest_magnitude(in, src, i, std::min(i + block, end));
            here < float_infinity)
            largest = std::max(largest, here);
    return nvfp4_base(largest);
}

void encode_nvfp4(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                  std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    Nvfp4Base base;
    Nvfp4Scale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            base = base_of_bucket(in, src, i - first, std::min(i + bucket, end) - first);
            store_bits(payload + range.layout->bases, i / bucket, base.wire);
        }
        if (i % block == 0) {
            scale =
                nvfp4_scale(largest_magnitude(in, src, i - first, std::min(i + block, end) - first),
                            base, rounds_up);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        return nvfp4_code(block_input(in, src, i - first), scale, draw_of(range, noise, i));
    });
}

void decode_nvfp4(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                  double *values) {
    for (size_t i = 0; i < count; i++) {
        const uint64_t element = first + i;
        values[i] = nvfp4_value(
            read_code(range, payload, element),
            load_bits<uint8_t>(payload + range.layout->scales, element / block),
            load_bits<float>(payload + range.layout->bases, element / bucket_values(range)));
    }
}

} // namespace

const CodecFamily nvfp4_family{.encode = encode_nvfp4, .decode = decode_nvfp4};

// ---- onebit

namespace {

// Returns the mean of the values whose code is `code`.
float mean_of_bucket(uint32_t code, DataType in, const void *src, uint64_t begin, uint64_t end) {
    const auto sum_of = [&](float factor) {
        return pinned_sum(end - begin, [&](uint64_t i) {
            const float x = block_input(in, src, begin + i);
            return onebit_code(x) == code ? x * factor : 0.0F;
        });
    };
    uint64_t count = 0;
    for (uint64_t i = begin; i < end; i++) count += onebit_code(block_input(in, src, i)) == code;
    const float sum = sum_of(1);
    return is_finite(sum) ? onebit_mean(sum, count, 1)
                          : onebit_mean(sum_of(onebit_lowered), count, onebit_lowered);
}

void encode_onebit(const ChunkRange &range, const Noise &, DataType in, const void *src,
                   std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    bool are_finite = false;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            const uint64_t from = i - first, to = std::min(i + bucket, end) - first;
            are_finite = is_finite(std::bit_cast<float>(largest_magnitude(in, src, from, to)));
            for (uint32_t code = 0; code < 2; code++)
                store_bits(payload + range.layout->scales, i / bucket * 2 + code,
                           are_finite ? mean_of_bucket(code, in, src, from, to)
                                      : std::bit_cast<float>(float_nan));
        }
        return are_finite ? onebit_code(block_input(in, src, i - first)) : 0;
    });
}

void decode_onebit(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                   double *values) {
    const std::byte *scales = payload + range.layout->scales;
    for (size_t i = 0; i < count; i++) {
        const uint64_t bucket = (first + i) / bucket_values(range);
        values[i] =
            onebit_value(read_code(range, payload, first + i), load_bits<float>(scales, bucket * 2),
                         load_bits<float>(scales, bucket * 2 + 1));
    }
}

} // namespace

const CodecFamily onebit_family{.encode = encode_onebit, .decode = decode_onebit};

// ---- terngrad

namespace {

TerngradScale scale_of_ternary_bucket(const Codec &codec, DataType in, const void *src,
                                      uint64_t begin, uint64_t end) {
    const uint32_t largest = largest_magnitude(in, src, begin, end);
    const float lift = terngrad_lift(largest);
    const float squares = pinned_sum(end - begin, [&](uint64_t i) {
        const float x = block_input(in, src, begin + i) * lift;
        return x * x;
    });
    return terngrad_scale(largest, squares, end - begin, codec.clip);
}

void encode_terngrad(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                     std::byte *payload) {
    const uint64_t bucket = range.codec->bucket, end = coded_end(range);
    for (uint64_t begin = range.begin; begin < end; begin += bucket) {
        const uint64_t count = std::min(bucket, end - begin), bytes = ternary_bytes(count);
        const uint64_t number = begin / bucket;
        const TerngradScale scale = scale_of_ternary_bucket(
            *range.codec, in, src, begin - range.begin, begin + count - range.begin);
        store_bits(payload + range.layout->scales, number, scale.wire);
        std::byte *const packed = payload + range.layout->digits + number * ternary_bytes(bucket);
        for (uint64_t byte = 0; byte < bytes; byte++) {
            uint32_t digits = 0, power = 1;
            for (uint64_t i = byte; i < count; i += bytes, power *= 3)
                digits += power * terngrad_digit(block_input(in, src, begin + i - range.begin),
                                                 scale, draw_of(range, noise, begin + i));
            packed[byte] = static_cast<std::byte>(digits);
        }
    }
}

void decode_terngrad(const ChunkRange &range, const std::byte *payload, uint64_t first,
                     size_t count, double *values) {
    static constexpr uint32_t powers[] = {1, 3, 9, 27, 81};
    const uint64_t bucket = range.codec->bucket;
    for (size_t i = 0; i < count; i++) {
        const uint64_t number = (first + i) / bucket, at = (first + i) % bucket;
        const uint64_t bytes =
            ternary_bytes(std::min(bucket, range.layout->coded - number * bucket));
        const std::byte packed =
            payload[range.layout->digits + number * ternary_bytes(bucket) + at % bytes];
        const uint32_t digit = std::to_integer<uint32_t>(packed) / powers[at / bytes] % 3;
        values[i] = terngrad_value(digit, load_bits<float>(payload + range.layout->scales, number));
    }
}

} // namespace

const CodecFamily terngrad_family{.encode = encode_terngrad, .decode = decode_terngrad};

// ---- norm

namespace {

float norm_of_bucket(const Codec &codec, DataType in, const void *src, uint64_t begin,
                     uint64_t end) {
    const uint32_t largest = largest_magnitude(in, src, begin, end);
    const auto squares_with = [&](float lift) {
        return pinned_sum(end - begin, [&](uint64_t i) {
            const float x = block_input(in, src, begin + i) * lift;
            return x * x;
        });
    };
    const NormGrid grid(codec);
    if (codec.norm == BucketNorm::linf || largest >= float_infinity)
        return grid.stored(std::bit_cast<float>(largest), largest);
    if (const float squares = squares_with(1); !needs_lift(squares))
        return grid.stored(norm_of_squares(squares, 1), largest);
    const float lift = norm_lift(largest);
    return grid.stored(norm_of_squares(squares_with(lift), lift), largest);
}

void encode_norm(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                 std::byte *payload) {
    const uint64_t bucket = bucket_values(range), first = range.begin, end = coded_end(range);
    const NormGrid grid(*range.codec);
    NormScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % bucket == 0) {
            const float norm =
                norm_of_bucket(*range.codec, in, src, i - first, std::min(i + bucket, end) - first);
            store_bits(payload + range.layout->scales, i / bucket, norm);
            scale = norm_scale(norm, grid);
        }
        const int32_t code =
            norm_code(block_input(in, src, i - first), scale, grid, draw_of(range, noise, i));
        return static_cast<uint32_t>(code) & ((1U << range.codec->bits) - 1); // two's complement
    });
}

void decode_norm(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                 double *values) {
    const NormGrid grid(*range.codec);
    const uint32_t sign = 1U << (range.codec->bits - 1);
    for (size_t i = 0; i < count; i++) {
        const auto norm =
            load_bits<float>(payload + range.layout->scales, (first + i) / bucket_values(range));
        const uint32_t code = read_code(range, payload, first + i);
        const int32_t number = static_cast<int32_t>(code ^ sign) - static_cast<int32_t>(sign);
        values[i] = norm_value(number, grid.factor(norm), grid);
    }
}

} // namespace

const CodecFamily norm_family{.encode = encode_norm, .decode = decode_norm};

// ---- tbq

namespace {

void encode_tbq(const ChunkRange &range, const Noise &, DataType in, const void *src,
                std::byte *payload) {
    encode_groups(range, payload, [&](uint64_t i) {
        return tbq_code(block_input(in, src, i - range.begin), range.codec->threshold);
    });
}

void decode_tbq(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                double *values) {
    for (size_t i = 0; i < count; i++)
        values[i] = tbq_value(read_code(range, payload, first + i), range.codec->threshold);
}

} // namespace

const CodecFamily tbq_family{.encode = encode_tbq, .decode = decode_tbq};

// ---- topk

namespace {

constexpr uint64_t page = topk_page_values;

// Returns the bit pattern of a value in the tensor's type, NaN canonical.
uint64_t pattern_of(DataType type, DataType in, const void *src, uint64_t i) {
    uint64_t pattern = 0;
    store_float(type, &pattern, 0, load_float(in, src, i));
    return pattern;
}

// Returns the magnitude's bits. They order infinities above all numbers, and NaN above infinities.
uint64_t magnitude_of(DataType type, uint64_t pattern) {
    return pattern & ((uint64_t{1} << (8 * type_bytes(type) - 1)) - 1);
}

// topk keeps the magnitudes above the threshold, and the first `ties` of those that equal it.
struct Threshold {
    uint64_t magnitude = 0, ties = 0;
};

Threshold find_threshold(const ChunkRange &range, DataType in, const void *src) {
    Threshold found{.magnitude = 0, .ties = range.layout->kept};
    for (unsigned digit = static_cast<unsigned>(type_bytes(range.type)); digit-- > 0;) {
        uint64_t numbers[256] = {};
        const unsigned shift = 8 * digit;
        for (uint64_t i = 0; i < range.count; i++) {
            const uint64_t magnitude =
                magnitude_of(range.type, pattern_of(range.type, in, src, i)) >> shift;
            if (magnitude >> 8 == found.magnitude) numbers[magnitude & 255]++;
        }
        uint64_t value = 255;
        for (; numbers[value] < found.ties; value--) found.ties -= numbers[value];
        found.magnitude = found.magnitude << 8 | value;
    }
    return found;
}

// The range must be the whole chunk.
void encode_topk(const ChunkRange &range, const Noise &, DataType in, const void *src,
                 std::byte *payload) {
    const PayloadLayout &layout = *range.layout;
    Threshold left = find_threshold(range, in, src);
    uint64_t kept = 0;
    for (uint64_t begin = 0; begin < range.count; begin += page) {
        const uint64_t before = kept;
        for (uint64_t i = begin; i < std::min(begin + page, range.count); i++) {
            const uint64_t pattern = pattern_of(range.type, in, src, i),
                           magnitude = magnitude_of(range.type, pattern);
            if (magnitude < left.magnitude) continue;
            if (magnitude == left.magnitude) {
                if (left.ties == 0) continue;
                left.ties--;
            }
            store_bits(payload + layout.indices, kept, static_cast<uint16_t>(i - begin));
            std::memcpy(payload + layout.kept_values + kept * type_bytes(range.type), &pattern,
                        type_bytes(range.type));
            kept++;
        }
        store_bits(payload + layout.page_counts, begin / page,
                   static_cast<uint32_t>(kept - before));
    }
}

void decode_topk(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                 double *values) {
    const PayloadLayout &layout = *range.layout;
    const auto count_of = [&](uint64_t at) {
        return load_bits<uint32_t>(payload + layout.page_counts, at);
    };
    const auto index = [&](uint64_t at) {
        return load_bits<uint16_t>(payload + layout.indices, at);
    };
    std::fill_n(values, count, 0.0);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < first / page; i++) kept += count_of(i);
    const uint64_t end = first + count;
    for (uint64_t begin = first / page * page; begin < end; begin += page) {
        const uint64_t stop = kept + count_of(begin / page);
        // Finds the first kept value of the page that is not before the range.
        uint64_t low = kept, high = stop;
        while (low < high) {
            const uint64_t middle = (low + high) / 2;
            if (begin + index(middle) < first)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < stop && begin + index(low) < end; low++)
            values[begin + index(low) - first] =
                load_float(range.type, payload + layout.kept_values, low);
        kept = stop;
    }
}

} // namespace

const CodecFamily topk_family{.encode = encode_topk, .decode = decode_topk};

} // namespace qccl
