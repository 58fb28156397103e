// Opens a rank's GPU and its stream, and copies between host memory and the device.
#include "perf/rank_device.hpp"

#include "device/loader.hpp"
#include "topology/machine_identity.hpp"

#include <cstring>

namespace qccl::perf {

Result<RankDevice> RankDevice::open(const std::string &name) {
    RankDevice device(name);
    QCCL_TRY(device.gpu_, open_gpu(name));
    if (device.gpu_) {
        QCCL_TRY(device.stream_, OwnStream::create(device.gpu_, StreamPriority::usual));
    }
    return Result<RankDevice>(std::move(device));
}

std::string RankDevice::model() const { return gpu_ ? gpu_->traits().model : processor_name(); }

qcclStream_t RankDevice::stream() const {
    return enqueues() ? static_cast<qcclStream_t>(stream_.get()) : QCCL_STREAM_SYNC;
}

Done RankDevice::wait() const { return gpu_ ? gpu_->synchronize(stream_.get()) : Done(); }

Done RankDevice::copy(void *to, const void *from, size_t bytes) const {
    if (bytes == 0) return {};
    if (!gpu_) {
        std::memcpy(to, from, bytes);
        return {};
    }
    QCCL_TRY(gpu_->copy(stream_.get(), to, from, bytes));
    return wait();
}

} // namespace qccl::perf
