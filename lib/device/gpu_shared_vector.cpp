// Starts the passes of a call with shared scales on the GPU's own stream.
#include "device/gpu_shared_vector.hpp"

#include "base/sizes.hpp"

namespace qccl {

// What is kept from call to call.
static constexpr size_t most_kept = size_t{64} << 20;

GpuSharedVector::GpuSharedVector(const Device &device)
    : device_(device),
      launcher_(launch, this, MostBlocks::of_gpu(device.gpu->traits().multiprocessors)) {}

Done GpuSharedVector::launch(void *vector, KernelId kernel, unsigned blocks, const Batch &batch) {
    Gpu &gpu = *static_cast<const GpuSharedVector *>(vector)->device_.gpu;
    return gpu.launch(gpu.own_stream(), kernel, blocks, batch);
}

Done GpuSharedVector::finish() {
    QCCL_TRY(launcher_.flush());
    return device_.gpu->synchronize(device_.gpu->own_stream());
}

// The memory has the scales, then the integers, and then the values of a call with a state.
Done GpuSharedVector::begin(const SharedLayout &layout, const SharedBuffers &buffers) {
    layout_ = &layout;
    buffers_ = buffers;
    const DataType sum_type = accumulator_of(layout.type);
    const size_t integers_at = round_up(layout.blocks() * sizeof(uint16_t), gpu_alignment);
    const size_t integers = layout.is_in_result() ? 0 : layout.values() * sizeof(float);
    const size_t sums_at = integers_at + round_up(integers, gpu_alignment);
    const size_t sums = buffers.owed ? layout.values() * type_bytes(sum_type) : 0;
    QCCL_TRY(grow(memory_, device_, sums_at + sums));
    std::byte *const memory = memory_.data();
    scales_ = reinterpret_cast<uint16_t *>(memory);
    integers_ = layout.is_in_result() ? static_cast<float *>(buffers.recv)
                                      : reinterpret_cast<float *>(memory + integers_at);
    sums_ = buffers.owed ? memory + sums_at : nullptr;
    return {};
}

void GpuSharedVector::end() {
    if (memory_.bytes() > most_kept) memory_ = {};
}

const std::byte *GpuSharedVector::input(const SharedPart &part) const {
    if (sums_) return sums_ + part.integer * type_bytes(accumulator_of(layout_->type));
    return static_cast<const std::byte *>(buffers_.send) + part.start * type_bytes(layout_->type);
}

template <class Visitor> Done GpuSharedVector::for_each_part(const Visitor &visit) {
    for (const SharedPart &part : layout_->parts) QCCL_TRY(visit(part, scales_ + part.scale));
    return finish();
}

// A call with a state has no gaps between its parts.
Done GpuSharedVector::find_scales() {
    const DataType sum_type = accumulator_of(layout_->type);
    if (sums_) {
        const KernelLauncher::Source sources[] = {
            {.type = layout_->type, .at = static_cast<const std::byte *>(buffers_.send)},
            {.type = sum_type, .at = buffers_.owed}};
        QCCL_TRY(launcher_.fold({.sources = sources, .count = layout_->values()}, sum_type,
                                sum_type, sums_));
        QCCL_TRY(launcher_.flush());
    }
    const DataType type = sums_ ? sum_type : layout_->type;
    return for_each_part([&](const SharedPart &part, uint16_t *scales) {
        return launcher_.find_scales(scales, type, input(part), part.count, layout_->block,
                                     layout_->limit);
    });
}

// The only encode of a value is the one on its own rank.
Done GpuSharedVector::make_integers() {
    const DataType sum_type = accumulator_of(layout_->type);
    return for_each_part([&](const SharedPart &part, const uint16_t *scales) {
        std::byte *const residual =
            sums_ ? buffers_.residual + part.integer * type_bytes(sum_type) : nullptr;
        return launcher_.to_integers(integers_ + part.integer, sums_ ? sum_type : layout_->type,
                                     input(part), scales, part.count, layout_->block, residual);
    });
}

Done GpuSharedVector::make_values() {
    if (!layout_->result) return {};
    const SharedPart &part = layout_->parts[*layout_->result];
    QCCL_TRY(launcher_.from_integers(layout_->type, buffers_.recv, result(), scales_ + part.scale,
                                     part.count, layout_->block, layout_->divisor));
    return finish();
}

} // namespace qccl
