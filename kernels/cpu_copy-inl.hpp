// Copies values: bits between equal types, and one rounding between a type and its accumulator's
// type. Also provides the stores that bypass the cache. Compiled once per target.
#if defined(QCCL_CPU_COPY_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_COPY_INL
#undef QCCL_CPU_COPY_INL
#else
#define QCCL_CPU_COPY_INL
#endif

#include "kernels/cpu_reduce-inl.hpp"

#include <hwy/cache_control.h>

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace qccl::HWY_NAMESPACE {

inline constexpr size_t cache_line = 64;

// Copies `bytes` bytes. Full cache lines bypass the cache; the bytes before and behind them are
// stored normally. The caller must call hwy::FlushStream once at the end.
inline void stream_bytes(std::byte *dst, const std::byte *src, size_t bytes) {
    const size_t misaligned = reinterpret_cast<uintptr_t>(dst) % cache_line;
    const size_t head = std::min(bytes, (cache_line - misaligned) % cache_line);
    const size_t lines_end = head + (bytes - head) / cache_line * cache_line;
    const hn::CappedTag<uint8_t, cache_line> d;
    const size_t step = hn::Lanes(d);
    std::memcpy(dst, src, head);
    for (size_t i = head; i < lines_end; i += step) {
        const auto v = hn::LoadU(d, reinterpret_cast<const uint8_t *>(src + i));
        hn::Stream(v, d, reinterpret_cast<uint8_t *>(dst + i));
    }
    std::memcpy(dst + lines_end, src + lines_end, bytes - lines_end);
}

// Stores the `count` values that `fill(first, count, dst)` computes. Each tile is computed in the
// first-level cache and then stored past the cache.
inline constexpr size_t stream_tile = 1024;
template <class T, class Fill>
HWY_INLINE void stream_tiles(T *dst, size_t count, const Fill &fill) {
    alignas(cache_line) T tile[stream_tile];
    for (size_t i = 0; i < count; i += stream_tile) {
        const size_t part = std::min(stream_tile, count - i);
        fill(i, part, tile);
        stream_bytes(reinterpret_cast<std::byte *>(dst + i),
                     reinterpret_cast<const std::byte *>(tile), part * sizeof(T));
    }
    hwy::FlushStream();
}

template <class In, class Out> struct ConvertStep {
    static HWY_INLINE void run(Storage<Out> *dst, const Storage<In> *src) {
        store<Out>(load<In>(src), dst);
    }
};
template <class In, class Out>
void convert(void *dst, const void *src, size_t count, bool streams) {
    auto *to = static_cast<Storage<Out> *>(dst);
    const auto *from = static_cast<const Storage<In> *>(src);
    const auto fill = [from](size_t first, size_t part, Storage<Out> *values) HWY_ATTR {
        for_each_vector<ConvertStep<In, Out>>(lanes(), values, from + first, part);
    };
    if (streams)
        stream_tiles(to, count, fill);
    else
        fill(0, count, to);
}

// Converts between fp32 and F: one of the two types is always float32.
template <class F>
void convert_float(DataType out, void *dst, const void *src, size_t count, bool streams) {
    if (out == DataType::float32)
        convert<F, float>(dst, src, count, streams);
    else
        convert<float, F>(dst, src, count, streams);
}

inline void copy(DataType out, void *dst, DataType in, const void *src, size_t count,
                 bool streams) {
    if (in == out) {
        const size_t bytes = count * type_bytes(in);
        if (dst == src || bytes == 0) return;
        if (!streams) {
            std::memcpy(dst, src, bytes);
            return;
        }
        stream_bytes(static_cast<std::byte *>(dst), static_cast<const std::byte *>(src), bytes);
        return hwy::FlushStream();
    }
    switch (in == DataType::float32 ? out : in) {
    case DataType::float16: return convert_float<Half>(out, dst, src, count, streams);
    case DataType::bfloat16: return convert_float<Bfloat>(out, dst, src, count, streams);
    case DataType::float8e4m3: return convert_float<E4m3>(out, dst, src, count, streams);
    case DataType::float8e5m2: return convert_float<E5m2>(out, dst, src, count, streams);
    default: return convert_float<double>(out, dst, src, count, streams);
    }
}

} // namespace qccl::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
