// The factor of pre_mul_sum on a GPU: a vector in the GPU's memory that holds the factor as often
// as a segment has values, so that a kernel which combines vectors multiplies a segment by it. The
// engine fills the vector before a call, on the thread that runs calls; filling it waits for the
// GPU. A vector that holds the factor already stays as it is.
#pragma once

#include "device/device.hpp"
#include "engine/compile/custom_op.hpp"
#include "engine/gpu/gpu_lanes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace qccl {

class GpuFactors {
public:
    // Lets the vector have at least `count` values of the type in which the operation sums. No
    // kernel may be using the vector. An error is the GPU's.
    Done fill(const Device &device, GpuLanes &lanes, const CustomOp &op, uint64_t count);

    const std::byte *data() const { return values_.data(); }

private:
    struct Filled {
        DataType type;
        std::array<std::byte, 16> factor;
        uint64_t count;
    };
    Done write_first(const Device &device, KernelLauncher &launcher, const CustomOp &op);

    DeviceMemory values_;
    std::unique_ptr<PinnedMemory> given_;
    std::optional<Filled> filled_; // nothing also if the factor may have changed where it lies
};

} // namespace qccl
