// The vectors of calls with shared scales (the codec shared) on a GPU, as SharedVector is on a
// host. A communicator has one object for all of its calls, which use it one after the other. One
// thread at a time uses it. The passes wait for the GPU, and never for other ranks or for a stream
// of the caller.
#pragma once

#include "base/result.hpp"
#include "device/device.hpp"
#include "device/kernel_launcher.hpp"
#include "device/shared_vector.hpp"

#include <cstddef>
#include <cstdint>

namespace qccl {

class GpuSharedVector {
public:
    explicit GpuSharedVector(const Device &device);
    GpuSharedVector(const GpuSharedVector &) = delete;

    // Begins a call, whose caller keeps the layout. An error, also of the passes, is the GPU's.
    Done begin(const SharedLayout &layout, const SharedBuffers &buffers);
    // Ends the call; memory that few calls need is given back.
    void end();

    // Of the call that has begun. Both collectives are in place.
    uint16_t *scales() const { return scales_; }
    float *integers() const { return integers_; }
    float *result() const { return integers_ + layout_->first_result(); }

    Done find_scales(); // those of this rank's values
    // Requires the scales on which the ranks have agreed.
    Done make_integers();
    Done make_values(); // of the sums

private:
    // Calls visit(part) for each part, and waits for what that launches.
    template <class Visitor> Done for_each_part(const Visitor &visit);
    const std::byte *input(const SharedPart &part) const; // what becomes integers
    Done finish();
    static Done launch(void *vector, KernelId kernel, unsigned blocks, const Batch &batch);

    const Device device_;
    KernelLauncher launcher_;
    DeviceMemory memory_;
    const SharedLayout *layout_ = nullptr;
    SharedBuffers buffers_;
    uint16_t *scales_ = nullptr;
    float *integers_ = nullptr;
    std::byte *sums_ = nullptr; // with a state: of the values and what it owes, as integers lie
};

} // namespace qccl
