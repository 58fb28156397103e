// Fills the vector by doubling the part that is filled.
#include "engine/gpu/gpu_factors.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

Done GpuFactors::fill(const Device &device, GpuLanes &lanes, const CustomOp &op, uint64_t count) {
    if (filled_ && filled_->type == op.type && filled_->factor == op.factor &&
        filled_->count >= count && !op.factor_at)
        return {};
    filled_.reset();
    const DataType type = accumulator_of(op.type);
    QCCL_TRY(grow(values_, device, count * type_bytes(type)));
    QCCL_TRY(lanes.prepare(1));
    KernelLauncher &launcher = lanes.launcher(0);
    QCCL_TRY(write_first(device, launcher, op));
    QCCL_TRY(launcher.flush());
    for (uint64_t done = 1; done < count; done *= 2) {
        QCCL_TRY(launcher.copy(type, values_.data() + done * type_bytes(type), type, values_.data(),
                               std::min(done, count - done)));
        QCCL_TRY(launcher.flush());
    }
    lanes.drain();
    if (!op.factor_at) filled_ = {op.type, op.factor, count};
    return {};
}

Done GpuFactors::write_first(const Device &device, KernelLauncher &launcher, const CustomOp &op) {
    const DataType type = accumulator_of(op.type);
    if (op.factor_at) return launcher.copy(type, values_.data(), op.type, op.factor_at, 1);
    if (!given_) {
        QCCL_TRY(PinnedMemory memory, PinnedMemory::create(device.gpu, op.factor.size()));
        given_ = std::make_unique<PinnedMemory>(std::move(memory));
    }
    std::memcpy(given_->data(), op.factor.data(), op.factor.size());
    return launcher.copy(type, values_.data(), op.type, given_->data(), 1);
}

} // namespace qccl
