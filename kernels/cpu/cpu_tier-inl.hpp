// A tier: the table of kernels for one target. The scalar reference handles everything without a
// fast path: blocks that are neither 8 or 16 values nor whole groups, minmax of fp64, and casts
// of fp64. Compiled once per target.
#if defined(QCCL_CPU_TIER_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_TIER_INL
#undef QCCL_CPU_TIER_INL
#else
#define QCCL_CPU_TIER_INL
#endif

#include "kernels/codec/rotated_chunks.hpp"
#include "kernels/cpu/cpu_decode-inl.hpp"
#include "kernels/cpu/cpu_encode-inl.hpp"
#include "kernels/cpu/cpu_exact-inl.hpp"
#include "kernels/cpu/cpu_fp8-inl.hpp"
#include "kernels/cpu/cpu_grid-inl.hpp"
#include "kernels/cpu/cpu_norm-inl.hpp"
#include "kernels/cpu/cpu_packing-inl.hpp"
#include "kernels/cpu/cpu_rotation-inl.hpp"
#include "kernels/cpu/cpu_shared-inl.hpp"
#include "kernels/cpu/cpu_sparse-inl.hpp"
#include "kernels/cpu/cpu_summed-inl.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

HWY_INLINE bool is_fast(const ChunkRange &range) {
    const Codec &codec = *range.codec;
    switch (codec.row().kind) {
    case CodecKind::cast: return range.type != DataType::float64;
    case CodecKind::integer: return is_vector_block(codec.bucket);
    case CodecKind::minmax: // the whole chunk's bucket is 0
        return range.type != DataType::float64 && codec.bucket % group_values == 0;
    case CodecKind::norm: return codec.bucket % group_values == 0;
    case CodecKind::mx:
    case CodecKind::scaled:
    case CodecKind::nvfp4:
    case CodecKind::terngrad:
    case CodecKind::tbq:
    case CodecKind::topk: return true;
    case CodecKind::onebit: return codec.bucket % group_values == 0;
    case CodecKind::plain:
    case CodecKind::grid:
    case CodecKind::dummy: break;
    }
    return false;
}

template <class In, class WireFormat> struct CastStep {
    static HWY_INLINE void run(Storage<WireFormat> *dst, const Storage<In> *src) {
        store_narrow<WireFormat, Overflow::saturate>(load<In>(src), dst);
    }
};
template <class WireFormat>
void encode_cast(DataType in, const void *src, std::byte *payload, uint64_t begin, size_t count) {
    auto *const dst = reinterpret_cast<Storage<WireFormat> *>(payload) + begin;
    switch (in) {
    case DataType::float16:
        return for_each_vector<CastStep<Half, WireFormat>>(
            lanes(), dst, static_cast<const uint16_t *>(src), count);
    case DataType::bfloat16:
        return for_each_vector<CastStep<Bfloat, WireFormat>>(
            lanes(), dst, static_cast<const uint16_t *>(src), count);
    case DataType::float8e4m3:
        return for_each_vector<CastStep<E4m3, WireFormat>>(
            lanes(), dst, static_cast<const uint8_t *>(src), count);
    case DataType::float8e5m2:
        return for_each_vector<CastStep<E5m2, WireFormat>>(
            lanes(), dst, static_cast<const uint8_t *>(src), count);
    default:
        return for_each_vector<CastStep<float, WireFormat>>(lanes(), dst,
                                                            static_cast<const float *>(src), count);
    }
}

// Rounds with noise, a tile at a time. Values of other formats go through fp32, which holds them.
template <class WireFormat>
void encode_cast_by_chance(const ChunkRange &range, const Noise &noise, DataType in,
                           const void *src, std::byte *payload) {
    const hn::Rebind<uint16_t, Words> halves;
    const hn::Rebind<Storage<WireFormat>, Words> narrow;
    const Groups groups{.first = 0, .count = 0, .per_block = 1, .values = range.count};
    GroupSource source(in, src, groups);
    Draws draws(range, noise);
    auto *const dst = reinterpret_cast<Storage<WireFormat> *>(payload) + range.begin;
    HWY_ALIGN Storage<WireFormat> rounded[tile_values];
    for (size_t i = 0; i < range.count; i += tile_values) {
        const size_t part = std::min<uint64_t>(tile_values, range.count - i);
        const float *const x = source.tile(i / group_values);
        const size_t groups_here = (part + group_values - 1) / group_values;
        const uint16_t *const drawn = draws.draws(i, groups_here * group_values);
        for (size_t at = 0; at < part; at += lanes()) {
            const WordVector k = hn::PromoteTo(Words(), hn::LoadU(halves, drawn + at));
            const WordVector bits =
                narrow_vector_by_chance<WireFormat>(hn::LoadU(Floats(), x + at), k);
            hn::StoreU(hn::DemoteTo(narrow, hn::BitCast(Ints(), bits)), narrow, rounded + at);
        }
        std::memcpy(dst + i, rounded, part * sizeof(Storage<WireFormat>));
    }
}

template <class Code, SimdRounding rounding>
HWY_INLINE void encode_integers(const ChunkRange &range, const Noise &noise, DataType in,
                                const void *src, std::byte *payload) {
    switch (range.codec->bucket) {
    case 8: return encode_small_blocks<8, Code, rounding>(range, noise, in, src, payload);
    case 16: return encode_small_blocks<16, Code, rounding>(range, noise, in, src, payload);
    default: return encode_integer<Code, rounding>(range, noise, in, src, payload);
    }
}

template <SimdRounding rounding>
HWY_INLINE void encode_as(bool is_integer, const ChunkRange &range, const Noise &noise, DataType in,
                          const void *src, std::byte *payload) {
    if (!is_integer) return encode_minmax<rounding>(range, noise, in, src, payload);
    if constexpr (rounding != SimdRounding::nearest_saturating) // only 8-bit codes saturate
        if (range.codec->bits > 8)
            return encode_integers<int16_t, rounding>(range, noise, in, src, payload);
    encode_integers<int8_t, rounding>(range, noise, in, src, payload);
}

HWY_INLINE void encode_blocks(const ChunkRange &range, const Noise &noise, DataType in,
                              const void *src, std::byte *payload) {
    const CodecRow &row = range.codec->row();
    if (row.kind == CodecKind::mx)
        return with_element(*range.codec,
                            [&]<class F>(F) { encode_mx<F>(range, noise, in, src, payload); });
    if (row.kind == CodecKind::scaled) return encode_scaled(range, noise, in, src, payload);
    if (row.kind == CodecKind::nvfp4)
        return range.codec->rounding == Rounding::stochastic
                   ? encode_nvfp4<true>(range, noise, in, src, payload)
                   : encode_nvfp4<false>(range, noise, in, src, payload);
    if (row.kind == CodecKind::norm) return encode_norm(range, noise, in, src, payload);
    if (row.kind == CodecKind::onebit) return encode_signs(range, noise, in, src, payload);
    if (row.kind == CodecKind::terngrad) return encode_ternary(range, noise, in, src, payload);
    if (row.kind == CodecKind::tbq) return encode_tbq(range, in, src, payload);
    if (row.kind == CodecKind::topk) return encode_largest(range, in, src, payload);
    const bool is_integer = row.kind == CodecKind::integer;
    if (range.codec->dithers())
        encode_as<SimdRounding::dithered>(is_integer, range, noise, in, src, payload);
    else if (range.codec->rounding == Rounding::stochastic)
        encode_as<SimdRounding::stochastic>(is_integer, range, noise, in, src, payload);
    else if (range.codec->bits == 8)
        encode_as<SimdRounding::nearest_saturating>(is_integer, range, noise, in, src, payload);
    else
        encode_as<SimdRounding::nearest>(is_integer, range, noise, in, src, payload);
}

inline void encode_codes(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                         std::byte *payload) {
    encode_blocks(range, noise, in, src, payload);
    if (range.begin + range.count == range.whole) clear_gaps(*range.codec, *range.layout, payload);
    const size_t coded = groups_of(range).values;
    copy(range.type, payload + range.layout->raw, in,
         static_cast<const std::byte *>(src) + coded * type_bytes(in), range.count - coded, false);
}

inline RotationSteps rotation_steps();

inline void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload) {
    const CodecRow &row = range.codec->row();
    if (range.codec->rotation != 0)
        return encode_rotated(rotation_steps(), range, noise, in, src, payload);
    if (row.kind == CodecKind::plain) {
        const size_t offset = range.begin * type_bytes(range.type);
        return copy(range.type, payload + offset, in, src, range.count, false);
    }
    if (row.kind == CodecKind::dummy)
        return copy(range.type, payload + range.begin * type_bytes(range.type), in, src,
                    range.first_values(), false);
    if (row.kind == CodecKind::grid && range.type != DataType::float64)
        return encode_on_grid(range, in, src, payload);
    if (!is_fast(range)) return scalar_kernels().encode(range, noise, in, src, payload);
    if (!row.cast) return encode_codes(range, noise, in, src, payload);
    with_narrow_format(*row.cast, [&]<class F>(F) {
        if (range.codec->rounding == Rounding::stochastic)
            return encode_cast_by_chance<F>(range, noise, in, src, payload);
        encode_cast<F>(in, src, payload, range.begin, range.count);
    });
}

// Copies between any two types. Narrow formats have no direct conversion, so their values go
// through fp32, one tile at a time.
inline void copy_plain(DataType out, void *dst, DataType in, const void *src, size_t count,
                       bool streams) {
    if (in == out || in == DataType::float32 || out == DataType::float32)
        return copy(out, dst, in, src, count, streams);
    HWY_ALIGN float values[stream_tile];
    for (size_t i = 0; i < count; i += stream_tile) {
        const size_t part = std::min(stream_tile, count - i);
        copy(DataType::float32, values, in,
             static_cast<const std::byte *>(src) + i * type_bytes(in), part, false);
        copy(out, static_cast<std::byte *>(dst) + i * type_bytes(out), DataType::float32, values,
             part, streams);
    }
}

// Decodes dummy: the first values of a chunk, and zeros.
inline void decode_first(const ChunkRange &range, const std::byte *payload, DataType out, void *dst,
                         bool streams) {
    const size_t kept = range.first_values();
    copy_plain(out, dst, range.type, payload + range.begin * type_bytes(range.type), kept, streams);
    std::memset(static_cast<std::byte *>(dst) + kept * type_bytes(out), 0,
                (range.count - kept) * type_bytes(out));
}

inline void decode(const ChunkRange &range, const std::byte *payload, DataType out, void *dst,
                   bool streams) {
    if (range.codec->rotation != 0)
        return decode_rotated(rotation_steps(), range, payload, out, dst, streams);
    const DataType plain = range.codec->plain_type(range.type);
    // A multiple may be beyond the type's largest number although the value was not.
    if (range.codec->has_grid() && (out == DataType::float16 || out == DataType::bfloat16)) {
        const std::byte *const values = payload + range.begin * type_bytes(plain);
        const auto saturate = out == DataType::float16 ? encode_cast<Half> : encode_cast<Bfloat>;
        return saturate(plain, values, static_cast<std::byte *>(dst), 0, range.count);
    }
    if (range.codec->is_plain())
        return copy_plain(out, dst, plain, payload + range.begin * type_bytes(plain), range.count,
                          streams);
    if (range.codec->row().is_sparse) return decode_largest(range, payload, out, dst, streams);
    if (range.codec->row().kind == CodecKind::dummy)
        return decode_first(range, payload, out, dst, streams);
    if (!is_fast(range)) return scalar_kernels().decode(range, payload, out, dst, streams);
    const Groups groups = groups_of(range);
    decode_codes(range, groups, payload, out, dst, streams);
    copy_plain(out, static_cast<std::byte *>(dst) + groups.values * type_bytes(out), plain,
               payload + range.layout->raw, range.count - groups.values, false);
}

// Like `reduce`, but the accumulator may be wider than fp32: casts are then converted before the
// addition.
inline void reduce_plain(RedOp op, DataType type, void *accumulator, DataType in, const void *src,
                         size_t count) {
    if (type != DataType::float64 || in == DataType::float64)
        return reduce(op, type, accumulator, in, src, count);
    double values[tile_values];
    for (size_t i = 0; i < count; i += tile_values) {
        const size_t part = std::min(tile_values, count - i);
        copy_plain(type, values, in, static_cast<const std::byte *>(src) + i * type_bytes(in), part,
                   false);
        reduce(op, type, static_cast<double *>(accumulator) + i, type, values, part);
    }
}

inline void decode_add_first(const ChunkRange &range, RedOp op, const std::byte *payload,
                             void *accumulator) {
    const DataType type = accumulator_of(range.type);
    const size_t kept = range.first_values();
    reduce_plain(op, type, accumulator, range.type, payload + range.begin * type_bytes(range.type),
                 kept);
    // A sum with +0 is not always its other term: -0 becomes +0.
    const double zeros[tile_values] = {};
    for (size_t i = kept; i < range.count; i += tile_values)
        reduce(op, type, static_cast<std::byte *>(accumulator) + i * type_bytes(type), type, zeros,
               std::min<size_t>(tile_values, range.count - i));
}

inline void decode_add(const ChunkRange &range, RedOp op, const std::byte *payload,
                       void *accumulator) {
    if (range.codec->rotation != 0)
        return decode_add_rotated(rotation_steps(), range, op, payload, accumulator);
    const DataType plain = range.codec->plain_type(range.type), type = accumulator_of(range.type);
    if (range.codec->is_plain())
        return reduce_plain(op, type, accumulator, plain, payload + range.begin * type_bytes(plain),
                            range.count);
    if (range.codec->row().is_sparse) return decode_add_largest(range, op, payload, accumulator);
    if (range.codec->row().kind == CodecKind::dummy)
        return decode_add_first(range, op, payload, accumulator);
    if (!is_fast(range)) return scalar_kernels().decode_add(range, op, payload, accumulator);
    const Groups groups = groups_of(range);
    decode_add_codes(range, op, groups, payload, accumulator);
    reduce(op, type, static_cast<std::byte *>(accumulator) + groups.values * type_bytes(type),
           plain, payload + range.layout->raw, range.count - groups.values);
}

inline RotationSteps rotation_steps() {
    return {.encode = encode,
            .decode = decode,
            .decode_add = decode_add,
            .reduce = reduce_plain,
            .copy = copy_plain,
            .rotate = rotate,
            .rotate_back = rotate_back};
}

inline constexpr Kernels kernels {
#if HWY_TARGET == HWY_AVX3
    .tier = Tier::avx512,
#elif HWY_TARGET == HWY_AVX2
    .tier = Tier::avx2,
#elif HWY_TARGET == HWY_SSE4
    .tier = Tier::sse4,
#elif HWY_TARGET == HWY_NEON
    .tier = Tier::neon,
#elif HWY_TARGET == HWY_SVE
    .tier = Tier::sve,
#else
    .tier = Tier::generic,
#endif
    .encode = encode, .decode = decode, .decode_add = decode_add, .reduce = reduce, .copy = copy,
    .divide = divide, .keep_error = keep_error, .add_velocity = add_velocity,
    .begin_exact = begin_exact, .add_exact = add_exact, .round_exact = round_exact,
    .find_magnitudes = find_magnitudes, .to_integers = to_integers, .from_integers = from_integers,
    .pack = pack, .unpack = unpack,
};

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
