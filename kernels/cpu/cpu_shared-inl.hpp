// The codec `shared` in vectors: the largest magnitude of each block, and values to integers and
// back. What a block's last vector does not fill goes one by one. Compiled once per target.

#if defined(QCCL_CPU_SHARED_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef QCCL_CPU_SHARED_INL
#undef QCCL_CPU_SHARED_INL
#else
#define QCCL_CPU_SHARED_INL
#endif

#include "codec/shared_scales.hpp"
#include "kernels/cpu/cpu_values-inl.hpp"

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();

namespace qccl::HWY_NAMESPACE {

inline void find_magnitudes(uint32_t *greatest, const float *x, size_t count, size_t block) {
    const Words d;
    for (size_t first = 0; first < count; first += block) {
        const size_t end = std::min(first + block, count);
        WordVector all = hn::Zero(d);
        size_t i = first;
        for (; i + lanes() <= end; i += lanes())
            all = hn::Max(all, magnitude_of(hn::LoadU(Floats(), x + i)));
        uint32_t largest = std::max(greatest[first / block], hn::GetLane(hn::MaxOfLanes(d, all)));
        for (; i < end; i++)
            largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF);
        greatest[first / block] = largest;
    }
}

inline void to_integers(float *integers, const float *x, const uint16_t *scales, size_t count,
                        size_t block) {
    const Floats d;
    const FloatVector whole = hn::Set(d, whole_floats);
    for (size_t first = 0; first < count; first += block) {
        const size_t end = std::min(first + block, count);
        const uint16_t scale = scales[first / block];
        if (!has_integers(scale)) {
            std::fill(integers + first, integers + end, 0.0F);
            continue;
        }
        const FloatVector step = hn::Set(d, shared_step(scale));
        size_t i = first;
        for (; i + lanes() <= end; i += lanes()) {
            const FloatVector steps = hn::Div(hn::LoadU(d, x + i), step);
            hn::StoreU(hn::Sub(hn::Add(steps, whole), whole), d, integers + i);
        }
        for (; i < end; i++) integers[i] = integer_of(x[i], scale);
    }
}

inline void from_integers(float *y, const float *sums, const uint16_t *scales, size_t count,
                          size_t block, uint32_t ranks) {
    const Floats d;
    const FloatVector divisor = hn::Set(d, static_cast<float>(ranks)); // by 1 changes nothing
    for (size_t first = 0; first < count; first += block) {
        const size_t end = std::min(first + block, count);
        const uint16_t scale = scales[first / block];
        if (scale == shared_nan_scale) {
            std::fill(y + first, y + end, value_of_sum(0, scale, ranks));
            continue;
        }
        const FloatVector step = hn::Set(d, shared_step(scale));
        size_t i = first;
        for (; i + lanes() <= end; i += lanes())
            hn::StoreU(hn::Mul(hn::Div(hn::LoadU(d, sums + i), divisor), step), d, y + i);
        for (; i < end; i++) y[i] = value_of_sum(sums[i], scale, ranks);
    }
}

} // namespace qccl::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();
#endif
