// Checks which codecs are possible and which collectives, types and operations each supports, and
// computes the grid at which vectors are cut.
#include "codec/codec.hpp"

#include <numeric>

namespace qccl {
namespace {

bool is_block_bits(unsigned bits) {
    return (bits >= 2 && bits <= 6) || bits == 8 || bits == 10 || bits == 12;
}

unsigned element_bits(CodecId id) {
    return id == CodecId::mxfp8e4m3 ? 8 : id == CodecId::mxfp6e2m3 ? 6 : 4;
}

} // namespace

bool is_possible(const Codec &codec) {
    const bool is_plain =
        codec.bits == 0 && codec.bucket == 0 && codec.rounding == Rounding::nearest;
    if (codec.is_auto()) return false;
    if (codec.rounding > Rounding::stochastic || codec.bucket > largest_bucket) return false;
    if (codec.skips_incomplete && codec.id != CodecId::minmax) return false;
    if (codec.scaling != Scaling::ceil && !codec.is_mx() && codec.id != CodecId::nvfp4)
        return false;
    if (codec.share != 0 && codec.id != CodecId::topk) return false;
    if (codec.clip != 0 && codec.id != CodecId::terngrad) return false;
    switch (codec.id) {
    case CodecId::none:
    case CodecId::fp16:
    case CodecId::bf16:
    case CodecId::fp8e4m3:
    case CodecId::fp8e5m2: return is_plain;
    case CodecId::integer: return is_block_bits(codec.bits) && codec.bucket >= 1;
    case CodecId::minmax:
        // The bucket that is the whole chunk is never incomplete.
        return codec.bits >= 1 && codec.bits <= 8 &&
               !(codec.skips_incomplete && codec.bucket == Codec::whole_chunk);
    case CodecId::mxfp8e4m3:
    case CodecId::mxfp6e2m3:
    case CodecId::mxfp4:
        return codec.bits == element_bits(codec.id) && codec.bucket == mx_block_values;
    case CodecId::nvfp4: return codec.bits == 4 && codec.bucket % nvfp4_bucket_step == 0;
    case CodecId::onebit:
        return codec.bits == 1 && codec.bucket >= 1 && codec.rounding == Rounding::nearest;
    case CodecId::terngrad:
        return codec.bits == 0 && codec.bucket >= 1 && codec.rounding == Rounding::stochastic &&
               codec.clip >= 1 && codec.clip <= largest_clip;
    case CodecId::topk: return is_plain && codec.share >= 1 && codec.share <= whole_share;
    }
    return false;
}

Done check_codec(const Codec &codec, Collective collective, DataType type, RedOp op) {
    if (codec.is_lossless()) return {};
    if (!info(type).is_float)
        return Error::make(Code::invalid_argument,
                           "codec %s: %s values travel as they are, only floating point is encoded",
                           spec(codec).c_str(), name(type));
    if (reduces(collective) && !codec.is_cast() && op != RedOp::sum && op != RedOp::avg)
        return Error::make(
            Code::invalid_argument,
            "codec %s: possible with sum and avg, not with %s; fp16, bf16 and the fp8 do every op",
            spec(codec).c_str(), name(op));
    return {};
}

size_t grain(const Codec &codec, const Codec &other) {
    return std::lcm(grain(codec), grain(other));
}

size_t grain(const Codec &codec) {
    constexpr size_t grid = 64; // a cache line of bytes, two groups of codes
    return codec.bucket == 0 ? grid : std::lcm(size_t{codec.bucket}, grid);
}

} // namespace qccl
