// A GPU as a device: what the engine launches there and on which of its streams, and memory of the
// host that it reaches.
#pragma once

#include "device/device.hpp"

namespace qccl {

// `host` beside a GPU: of its kernels the host's are what headers and other ranks' chunks need.
Device gpu_device(const Device &host, std::shared_ptr<Gpu> gpu);

// A stream of a GPU that ends with its owner.
class OwnStream {
public:
    static Result<OwnStream> create(std::shared_ptr<Gpu> gpu);

    OwnStream() = default;
    OwnStream(OwnStream &&other) noexcept { swap(other); }
    OwnStream &operator=(OwnStream &&other) noexcept {
        OwnStream(std::move(other)).swap(*this);
        return *this;
    }
    ~OwnStream() {
        if (gpu_) gpu_->destroy_stream(stream_);
    }
    GpuStream get() const { return stream_; }

private:
    void swap(OwnStream &other) noexcept {
        std::swap(gpu_, other.gpu_);
        std::swap(stream_, other.stream_);
    }
    std::shared_ptr<Gpu> gpu_;
    GpuStream stream_ = nullptr;
};

// A mark that ends with its owner.
class OwnMark {
public:
    static Result<OwnMark> create(std::shared_ptr<Gpu> gpu);

    OwnMark() = default;
    OwnMark(OwnMark &&other) noexcept { swap(other); }
    OwnMark &operator=(OwnMark &&other) noexcept {
        OwnMark(std::move(other)).swap(*this);
        return *this;
    }
    ~OwnMark() {
        if (gpu_) gpu_->destroy_mark(mark_);
    }
    Done set(GpuStream stream) { return gpu_->set_mark(mark_, stream); }
    Done hold(GpuStream stream) const { return gpu_->await_mark(stream, mark_); }
    Result<bool> is_passed() const { return gpu_->is_passed(mark_); }
    bool is_there() const { return gpu_ != nullptr; }

private:
    void swap(OwnMark &other) noexcept {
        std::swap(gpu_, other.gpu_);
        std::swap(mark_, other.mark_);
    }
    std::shared_ptr<Gpu> gpu_;
    GpuMark mark_ = nullptr;
};

// Memory of the host that a GPU reaches, too, and that ends with its owner.
class PinnedMemory {
public:
    static Result<PinnedMemory> create(std::shared_ptr<Gpu> gpu, size_t bytes);

    PinnedMemory() = default;
    PinnedMemory(PinnedMemory &&other) noexcept { swap(other); }
    PinnedMemory &operator=(PinnedMemory &&other) noexcept {
        PinnedMemory(std::move(other)).swap(*this);
        return *this;
    }
    ~PinnedMemory() {
        if (gpu_) gpu_->leave_pinned(memory_, bytes_);
    }
    std::byte *data() const { return memory_; }

private:
    void swap(PinnedMemory &other) noexcept {
        std::swap(gpu_, other.gpu_);
        std::swap(memory_, other.memory_);
        std::swap(bytes_, other.bytes_);
    }
    std::shared_ptr<Gpu> gpu_;
    std::byte *memory_ = nullptr;
    size_t bytes_ = 0;
};

} // namespace qccl
