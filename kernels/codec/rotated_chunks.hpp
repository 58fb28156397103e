// Kernels of codecs with the key `rotate`, for all tiers of the CPU: a range is rotated a few
// thousand values at a time, in memory that stays in the first-level cache, and encoded from there
// by the tier's own kernels, as of a codec without the key; decoding likewise. The kernels of each
// tier call these functions for such codecs. Any thread may call; nothing blocks.
#pragma once

#include "device/kernels.hpp"

namespace qccl {

// What a tier does with the values.
struct RotationSteps {
    decltype(Kernels::encode) encode;
    decltype(Kernels::decode) decode;
    decltype(Kernels::decode_add) decode_add;
    decltype(Kernels::reduce) reduce;
    decltype(Kernels::copy) copy;
    // Rotates whole blocks of d values and copies those behind them. `dst` may be `src`.
    void (*rotate)(uint32_t d, const float *src, float *dst, uint64_t count);
    // The reverse. `adds`: it adds to the values at dst instead; NaN is canonical in either case.
    void (*rotate_back)(uint32_t d, const float *src, float *dst, uint64_t count, bool adds);
};
RotationSteps scalar_rotation_steps();

void encode_rotated(const RotationSteps &steps, const ChunkRange &range, const Noise &noise,
                    DataType in, const void *src, std::byte *payload);
void decode_rotated(const RotationSteps &steps, const ChunkRange &range, const std::byte *payload,
                    DataType out, void *dst, bool streams);
void decode_add_rotated(const RotationSteps &steps, const ChunkRange &range, RedOp op,
                        const std::byte *payload, void *accumulator);

} // namespace qccl
