// Sums the losses in fp64, in the order of the values.
#include "device/encode_loss.hpp"

#include "device/packed_chunk.hpp"

namespace qccl {

namespace {

template <class Number>
SampledLoss loss_of(const std::byte *values, const std::byte *decoded, uint64_t count) {
    const auto *const exact = reinterpret_cast<const Number *>(values);
    const auto *const lossy = reinterpret_cast<const Number *>(decoded);
    SampledLoss found;
    for (uint64_t i = 0; i < count; i++) {
        const auto x = static_cast<double>(exact[i]);
        const double error = static_cast<double>(lossy[i]) - x;
        found.square += x * x;
        found.product += x * error;
        found.error += error * error;
    }
    return found;
}

} // namespace

void EncodeLoss::read(DataType type, const void *values, uint64_t count) {
    const DataType wide = accumulator_of(type);
    type_ = type;
    values_ = values;
    count_ = count;
    wide_.resize(count * type_bytes(wide));
    decoded_.resize(wide_.size());
    if (count != 0) kernels_.copy(wide, wide_.data(), type, values, count, false);
}

SampledLoss EncodeLoss::measure(const Codec &codec, const Noise &noise) {
    if (count_ == 0) return {};
    const DataType wide = accumulator_of(type_);
    const PayloadLayout layout = payload_layout(codec, type_, count_);
    payload_.resize(layout.bytes);
    const ChunkRange range = whole_chunk(codec, layout, type_, count_, noise);
    kernels_.encode(range, noise, type_, values_, payload_.data());
    kernels_.decode(range, payload_.data(), wide, decoded_.data(), false);
    return wide == DataType::float64 ? loss_of<double>(wide_.data(), decoded_.data(), count_)
                                     : loss_of<float>(wide_.data(), decoded_.data(), count_);
}

size_t EncodeLoss::payload_bytes(const Codec &codec) {
    const size_t unpacked = payload_layout(codec, type_, count_).bytes;
    if (!codec.packs || !kernels_.pack) return unpacked;
    if (!scratch_) scratch_ = std::make_unique_for_overwrite<PackScratch>();
    packed_.resize(unpacked);
    return pack_payload(kernels_, codec, type_, count_, payload_.data(), packed_.data(), *scratch_);
}

} // namespace qccl
