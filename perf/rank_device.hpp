// Where the buffers of one rank live: in the host's memory, or in that of a GPU, where the rank has
// a stream of its own for all that it does. Knows no collectives.
#pragma once

#include "device/gpu_device.hpp"

#include <qccl/qccl.h>

#include <memory>
#include <string>

namespace qccl::perf {

class RankDevice {
public:
    // `name` as check_device has let it pass.
    static Result<RankDevice> open(const std::string &name);

    const std::string &name() const { return name_; }
    std::string model() const; // of the GPU, or of the host's processor
    int number() const { return gpu_ ? static_cast<int>(gpu_->traits().number) : 0; }
    const std::shared_ptr<Gpu> &gpu() const { return gpu_; } // null: the host

    // Of the rank's calls: QCCL_STREAM_SYNC on the host, and where streams cannot wait for it.
    qcclStream_t stream() const;
    // Whether calls return before they are done: `wait` is when they are.
    bool enqueues() const { return gpu_ && gpu_->traits().has_gates; }
    Done wait() const;

    // Behind the rank's calls, and done on return.
    Done copy(void *to, const void *from, size_t bytes) const;

private:
    explicit RankDevice(std::string name) : name_(std::move(name)) {}

    std::string name_;
    std::shared_ptr<Gpu> gpu_;
    OwnStream stream_;
};

} // namespace qccl::perf
