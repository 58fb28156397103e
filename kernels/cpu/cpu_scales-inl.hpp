// What turns a code into a value: the numbers of a block's scale, those of a tile's blocks, and the
// noise that dither subtracts. Compiled once per target; the decoders include it.

#if defined(QCCL_CPU_SCALES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SCALES_INL
#undef QCCL_CPU_SCALES_INL
#else
#define QCCL_CPU_SCALES_INL
#endif

#include "kernels/codec/norm_block.hpp"
#include "kernels/codec/small_float_block.hpp"
#include "kernels/cpu/cpu_group-inl.hpp"
#include "kernels/cpu/cpu_summed-inl.hpp"

#include <utility>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

// Groups decoded between two NaN checks; their values stay in the first-level cache.
inline constexpr size_t put_groups_most = 64;
static_assert(tile_groups <= put_groups_most);

// The draws of dither, or nothing.
struct NoDraws {
    NoDraws(const ChunkRange &, const Noise &) {}
};
template <bool is_dithered> using DrawsIf = std::conditional_t<is_dithered, Draws, NoDraws>;

// What dither subtracts from codes: noise, except from the code `last`.
struct Dither {
    const uint16_t *draws = nullptr;
    float last = 0;

    Dither from(size_t value) const { return {draws ? draws + value : nullptr, last}; }
    // Codes without a sign have no such code.
    template <class Byte> HWY_INLINE FloatVector subtract(FloatVector code, size_t value) const {
        FloatVector noise = dither_noise(draws + value);
        if constexpr (std::is_signed_v<Byte>)
            noise = hn::IfThenZeroElse(hn::Eq(code, hn::Set(Floats(), last)), noise);
        return hn::Sub(code, noise);
    }
};

// y = code * scale. A block has one number.
struct IntegerScale {
    static constexpr bool is_of_halves = false; // whether the second number scales values 16 to 31
    static constexpr bool is_spread = false;    // whether there is a number for each value
    using Byte = int8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(uint16_t);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        for (size_t i = 0; i < blocks; i++)
            dst[i] = std::bit_cast<float>(uint32_t{load_bits<uint16_t>(wire, i)} << 16);
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector scale, FloatVector) {
        return hn::Mul(code, scale);
    }
};
// y = minimum + unit * code.
struct MinmaxScale {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 2;
    static constexpr size_t wire_bytes = 2 * sizeof(float);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        std::memcpy(dst, wire, blocks * wire_bytes);
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector minimum, FloatVector unit) {
        return hn::Add(minimum, hn::Mul(unit, code));
    }
};

// y = code * scale, where the code is a small float and the scale is a power of two.
template <class F> struct ElementScale {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(uint8_t);
    static HWY_INLINE void load(const Codec &, const std::byte *wire, size_t blocks, float *dst) {
        for (size_t i = 0; i < blocks; i++) dst[i] = mx_power(load_bits<uint8_t>(wire, i));
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector scale, FloatVector) {
        const WordVector pattern = hn::BitCast(Words(), hn::ConvertTo(Ints(), code));
        return hn::Mul(widen_vector<F>(pattern), scale);
    }
};

// The same under a scale of bf16.
template <class F> struct Fp8Element : ElementScale<F> {
    static constexpr size_t wire_bytes = IntegerScale::wire_bytes;
    static HWY_INLINE void load(const Codec &codec, const std::byte *wire, size_t blocks,
                                float *dst) {
        IntegerScale::load(codec, wire, blocks, dst);
    }
};

// y = code * factor, with the factor of the norm.
struct UniformNorm {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = int8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = sizeof(float);
    static HWY_INLINE void load(const Codec &codec, const std::byte *wire, size_t blocks,
                                float *dst) {
        const NormGrid grid(codec);
        for (size_t i = 0; i < blocks; i++) dst[i] = grid.factor(load_bits<float>(wire, i));
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector factor, FloatVector) {
        return hn::Mul(code, factor);
    }
};
// y = power_of_code(code) * norm. The second number is what the exponent's field is more than the
// level.
struct PowerNorm {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = int8_t;
    static constexpr size_t numbers = 2;
    static constexpr size_t wire_bytes = sizeof(float);
    static HWY_INLINE void load(const Codec &codec, const std::byte *wire, size_t blocks,
                                float *dst) {
        for (size_t i = 0; i < blocks; i++) {
            dst[2 * i] = load_bits<float>(wire, i);
            dst[2 * i + 1] = static_cast<float>(127 - norm_levels(codec.bits));
        }
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector norm, FloatVector bias) {
        const Ints d;
        const Floats df;
        const FloatVector level = hn::Abs(code);
        const IntVector field = hn::ConvertTo(d, hn::Add(level, bias));
        const FloatVector power = hn::IfThenElseZero(hn::Gt(level, hn::Zero(df)),
                                                     hn::BitCast(df, hn::ShiftLeft<23>(field)));
        return hn::Mul(hn::CopySign(power, code), norm);
    }
};

// y = code * threshold, and NaN for the code that stands for it. There are no scales to be read.
struct ThresholdScale {
    static constexpr bool is_of_halves = false, is_spread = false;
    using Byte = int8_t;
    static constexpr size_t numbers = 1;
    static constexpr size_t wire_bytes = 0;
    static HWY_INLINE void load(const Codec &codec, const std::byte *, size_t, float *dst) {
        dst[0] = codec.threshold;
    }
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector threshold, FloatVector) {
        const auto is_nan = hn::Eq(code, hn::Set(Floats(), -2.0F));
        return hn::IfThenElse(is_nan, float_vector(float_nan), hn::Mul(code, threshold));
    }
};

// Several blocks of `int` share a group; `numbers` has a factor for each value.
template <size_t block> struct SmallScales {
    static constexpr bool is_of_halves = false, is_spread = true;
    using Byte = int8_t;
    static constexpr size_t numbers = group_values;
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector, FloatVector) { return code; }
};

// A group has the scales of its two blocks. The decoder multiplies the results of `value` by them.
struct Nvfp4Scales {
    static constexpr bool is_of_halves = true, is_spread = false;
    using Byte = uint8_t;
    static constexpr size_t numbers = 2;
    static HWY_INLINE FloatVector value(FloatVector code, FloatVector, FloatVector) {
        return widen_vector<E2m1>(hn::BitCast(Words(), hn::ConvertTo(Ints(), code)));
    }
};

// Finds the block of each group and holds the scales of a tile's blocks as floats: filling a vector
// from memory costs no shuffle.
template <class Scale> class Scales {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : block_((groups.first + first_group) / groups.per_block),
          left_(groups.per_block - (groups.first + first_group) % groups.per_block),
          per_block_(groups.per_block), end_(range.layout->scale_count), codec_(*range.codec),
          wire_(payload + range.layout->scales) {}

    // Loads the scales of the next tile, which has `groups` groups. Must be called before the
    // tile's first group.
    HWY_INLINE void begin_tile(size_t groups) {
        const size_t count =
            std::min<uint64_t>(per_block_ == 1 ? groups : groups / 2 + 1, end_ - block_);
        Scale::load(codec_, wire_ + block_ * Scale::wire_bytes, count, numbers_);
        at_ = numbers_;
    }
    // Returns the scale of the next groups, all of one block, and sets `groups` to their number,
    // which is at most `most`.
    HWY_INLINE const float *next(size_t most, size_t &groups) {
        const float *const scale = at_;
        groups = std::min(most, left_);
        left_ -= groups;
        if (left_ == 0) {
            left_ = per_block_;
            block_++;
            at_ += Scale::numbers;
        }
        return scale;
    }
    // The same as the other next() for blocks of one group.
    HWY_INLINE const float *next() {
        block_++;
        return std::exchange(at_, at_ + Scale::numbers);
    }

private:
    uint64_t block_;
    size_t left_, per_block_; // groups
    uint64_t end_;
    const Codec &codec_;
    const std::byte *wire_;
    const float *at_ = numbers_;
    float numbers_[Scale::numbers * put_groups_most];
};

template <size_t block> class Scales<SmallScales<block>> {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : block_((groups.first + first_group) * per_group), end_(range.layout->scale_count),
          codec_(*range.codec), wire_(payload + range.layout->scales) {}

    HWY_INLINE void begin_tile(size_t groups) {
        const uint64_t count = std::min<uint64_t>(per_group * groups, end_ - block_);
        float scales[per_group * put_groups_most];
        IntegerScale::load(codec_, wire_ + block_ * IntegerScale::wire_bytes, count, scales);
        spread<block>(scales, count, numbers_);
        std::fill(numbers_ + count * block, // padding that belongs to no value
                  numbers_ + (count + per_group - 1) / per_group * group_values, 0.0F);
        at_ = numbers_;
    }
    HWY_INLINE const float *next() {
        block_ += per_group;
        return std::exchange(at_, at_ + group_values);
    }
    HWY_INLINE const float *next(size_t, size_t &groups) {
        groups = 1;
        return next();
    }

private:
    static constexpr size_t per_group = group_values / block;

    uint64_t block_, end_;
    const Codec &codec_;
    const std::byte *wire_;
    const float *at_ = numbers_;
    HWY_ALIGN float numbers_[group_values * put_groups_most];
};

// Holds the products of scales and bases, one pair per group.
template <> class Scales<Nvfp4Scales> {
public:
    Scales(const ChunkRange &range, const Groups &groups, const std::byte *payload,
           size_t first_group)
        : range_(range), payload_(payload), group_(groups.first + first_group),
          per_bucket_(groups.per_block) {}

    HWY_INLINE void begin_tile(size_t groups) {
        const PayloadLayout &layout = *range_.layout;
        const uint64_t first = 2 * group_,
                       count = std::min<uint64_t>(2 * groups, layout.scale_count - first);
        for (uint64_t i = 0; i < count; i++) {
            const auto scale = load_bits<uint8_t>(payload_ + layout.scales, first + i);
            const auto base =
                load_bits<float>(payload_ + layout.bases, (first + i) / 2 / per_bucket_);
            numbers_[i] = widen<E4m3>(scale) * base;
        }
        if (count % 2 != 0) numbers_[count] = 0; // padding that belongs to no value
        at_ = numbers_;
    }
    HWY_INLINE const float *next() {
        group_++;
        return std::exchange(at_, at_ + Nvfp4Scales::numbers);
    }
    HWY_INLINE const float *next(size_t, size_t &groups) {
        groups = 1;
        return next();
    }

private:
    const ChunkRange &range_;
    const std::byte *payload_;
    uint64_t group_;
    size_t per_bucket_; // groups
    const float *at_ = numbers_;
    float numbers_[Nvfp4Scales::numbers * put_groups_most];
};

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
