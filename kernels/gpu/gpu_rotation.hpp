// The transform of kernels/codec/rotation.hpp on the values that the lanes of a warp hold of a row.
// Butterflies are made within a lane's runs, between its runs, and between lanes. All lanes of the
// warp must call. A row starts with a whole block of the range.
#pragma once

#include "kernels/codec/rotation.hpp"
#include "kernels/gpu/gpu_lane.hpp"

namespace qccl::QCCL_GPU {

// The butterflies between values of each run that are so far apart, between runs, and between
// lanes.
template <class R, unsigned runs, unsigned length>
QCCL_DEVICE void mix_in_runs(R (&x)[runs][length], unsigned distance) {
#pragma unroll
    for (unsigned run = 0; run < runs; run++)
#pragma unroll
        for (unsigned i = 0; i < length; i++)
            if ((i & distance) == 0 && i + distance < length) {
                const R a = x[run][i], b = x[run][i + distance];
                x[run][i] = a + b;
                x[run][i + distance] = a - b;
            }
}
template <class R, unsigned runs, unsigned length>
QCCL_DEVICE void mix_runs(R (&x)[runs][length], unsigned distance) {
#pragma unroll
    for (unsigned run = 0; run < runs; run++)
        if ((run & distance) == 0 && run + distance < runs)
#pragma unroll
            for (unsigned i = 0; i < length; i++) {
                const R a = x[run][i], b = x[run + distance][i];
                x[run][i] = a + b;
                x[run + distance][i] = a - b;
            }
}
template <class R, unsigned runs, unsigned length>
QCCL_DEVICE void mix_lanes(R (&x)[runs][length], unsigned distance) {
    const bool is_far = (lane() & distance) != 0;
    for_each_of_runs<runs, length>([&](unsigned run, unsigned i) {
        const R own = x[run][i], other = shuffle_xor(own, distance);
        x[run][i] = is_far ? other - own : own + other;
    });
}

// The butterflies of blocks of d values, from neighbours on.
template <class R> QCCL_DEVICE void mix(Held<Grouped, R> &x, uint32_t d) {
    mix_in_runs(x, 1);
    mix_in_runs(x, 2);
    mix_in_runs(x, 4);
    mix_lanes(x, 1);
    mix_runs(x, 1);
#pragma unroll 1
    for (unsigned distance = 2; distance < d / 16; distance *= 2) mix_lanes(x, distance);
}
template <class R> QCCL_DEVICE void mix(Held<Striped, R> &x, uint32_t d) {
    mix_in_runs(x, 1);
    mix_in_runs(x, 2);
    unsigned distance = 1;
#pragma unroll 1
    for (; distance < lanes && distance < d / 4; distance *= 2) mix_lanes(x, distance);
    if (d > 4 * lanes) mix_runs(x, 1);
    if (d > 8 * lanes) mix_runs(x, 2);
}

// Rotates a lane's values, in the precision R, which holds them; values of a block that the tensor
// does not have in full stay as they are.
template <class R, bool is_back, class T, class Layout>
QCCL_DEVICE void rotate_row(uint32_t d, const Place<Layout> &place, Held<Layout, T> &values) {
    Held<Layout, R> x;
    uint32_t signs[Layout::runs];
#pragma unroll
    for (unsigned run = 0; run < Layout::runs; run++)
        signs[run] = rotation_signs_from((Layout::first() + Layout::offset(run)) & (d - 1));
    const auto factor = [&](unsigned run, unsigned i) {
        return static_cast<R>(rotation_factor(d, is_back, signs[run] >> i));
    };
    for_each_value<Layout>([&](unsigned run, unsigned i) {
        x[run][i] = static_cast<R>(values[run][i]);
        if constexpr (!is_back) x[run][i] *= factor(run, i);
    });
    mix(x, d);
    // Values of the row, or more where the lane has all of its values.
    const unsigned there = Layout::first() + place.left;
    for_each_value<Layout>([&](unsigned run, unsigned i) {
        const unsigned block = (Layout::first() + Layout::offset(run)) & ~(d - 1);
        if constexpr (is_back) x[run][i] *= factor(run, i);
        if (block + d <= there) values[run][i] = static_cast<T>(x[run][i]);
    });
}

} // namespace qccl::QCCL_GPU
