// terngrad's encoder: a team reads its bucket three times, for the largest value, for the squares,
// and for the digits.
#pragma once

#include "kernels/gpu/gpu_team.hpp"

namespace qccl::QCCL_GPU {

template <class T> QCCL_DEVICE TerngradScale team_scale(const TeamBucket &bucket) {
    auto magnitude = Magnitude<float>::none();
    for_each_team_value<T>(bucket.source, bucket.span, [&](float x) { magnitude.add(x); });
    for (unsigned mask = 1; mask < sum_lanes; mask *= 2) magnitude.merge_lane(mask);
    const float lift = terngrad_lift(magnitude.largest);
    float squares = 0;
    for_each_team_value<T>(bucket.source, bucket.span, [&](float x) {
        const float lifted = x * lift;
        squares += lifted * lifted;
    });
    return terngrad_scale(magnitude.largest, team_sum(squares), bucket.span.end - bucket.span.start,
                          bucket.sink.clip);
}

template <class T> QCCL_DEVICE void encode_ternary(const Batch &batch) {
    if (block() == 0 && warp() == 0)
        for (uint32_t i = 0; i < batch.tensors; i++)
            clear_gaps(batch.operand[batch.tensor[i].first_source - 1]);
    const uint64_t base_call = batch.call != nullptr ? *batch.call : 0;
    for_each_team_bucket(batch, [&](const TeamBucket &bucket) {
        const TerngradScale scale = team_scale<T>(bucket);
        if (!bucket.is_there) return;
        const Operand &sink = bucket.sink;
        const Noise &noise = bucket.tensor.noise;
        if (team_lane() == 0) store_one(scale_at<float>(sink, bucket.span.start), scale.wire);
        const Ternary ternary = ternary_of(sink, bucket_of(sink, bucket.span.start));
        for (uint64_t byte = team_lane(); byte < ternary.bytes; byte += sum_lanes) {
            uint32_t digits = 0, power = 1;
            for (uint64_t i = byte; i < ternary.values; i += ternary.bytes, power *= 3) {
                const uint64_t place = bucket.span.start + i;
                const Draw draw{
                    noise_draw(noise.key, noise.call + base_call, noise.first_index + place)};
                digits +=
                    power * terngrad_digit(load_float_value<T>(bucket.source, place), scale, draw);
            }
            store_one(ternary.packed + byte, static_cast<uint8_t>(digits));
        }
    });
}

} // namespace qccl::QCCL_GPU
