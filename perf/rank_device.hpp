// Where the buffers of one rank are: in host memory, or in the memory of a GPU, where the rank has
// its own stream for all its work. Used by qccl-perf. One thread at a time.
#pragma once

#include "device/gpu_device.hpp"

#include <qccl/qccl.h>

#include <memory>
#include <string>

namespace qccl::perf {

class RankDevice {
public:
    // `name` must be one that check_device accepts.
    static Result<RankDevice> open(const std::string &name);

    const std::string &name() const { return name_; }
    std::string model() const; // of the GPU, or of the host's processor
    int number() const { return gpu_ ? static_cast<int>(gpu_->traits().number) : 0; }
    const std::shared_ptr<Gpu> &gpu() const { return gpu_; } // null: the rank is on the host

    // The stream for the rank's calls. QCCL_STREAM_SYNC on the host, and on GPUs whose streams
    // cannot wait for a word of the host.
    qcclStream_t stream() const;
    // Returns whether calls return before they are complete; wait() then waits for their
    // completion.
    bool enqueues() const { return gpu_ && gpu_->traits().has_stream_waits; }
    Done wait() const;

    // Copies after the rank's calls so far; blocks until the copy is complete.
    Done copy(void *to, const void *from, size_t bytes) const;

private:
    explicit RankDevice(std::string name) : name_(std::move(name)) {}

    std::string name_;
    std::shared_ptr<Gpu> gpu_;
    OwnStream stream_;
};

} // namespace qccl::perf
