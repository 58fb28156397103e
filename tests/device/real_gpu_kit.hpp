// For tests on whatever GPU the machine has, through the library's own interface to GPUs: the GPU
// that the command line or QTEST_DEVICE names, a stream there, and memory between guards.
#pragma once

#include "tests/kit/qtest.hpp"

#include "device/device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace real_gpu {

using namespace qccl;

inline constexpr int skipped = 77;

// The GPU that main opens once. Null: there is none, and open_tested has printed why.
inline std::shared_ptr<Gpu> tested;

inline bool open_tested(int argc, char **argv) {
    const char *const named = std::getenv("QTEST_DEVICE");
    const std::string device = argc > 1 ? argv[1] : named ? named : "cuda:0";
    auto gpu = open_gpu(device);
    if (!gpu) {
        std::printf("%s: skipped: %s\n", device.c_str(), gpu.error().text);
        return false;
    }
    tested = std::move(*gpu);
    const GpuTraits &traits = tested->traits();
    std::printf("%s: %s, %u multiprocessors, %u lanes\n", traits.name.c_str(), traits.model.c_str(),
                traits.multiprocessors, traits.lanes);
    std::fflush(stdout);
    return true;
}

inline bool is_emulated() { return tested->traits().name.starts_with("emulated"); }

// A stream such as a program creates, destroyed with this object.
class Stream {
public:
    Stream() {
        auto made = OwnStream::create(tested, StreamPriority::usual);
        CHECK_OK(made);
        stream_ = std::move(*made);
    }
    GpuStream get() const { return stream_.get(); }
    void copy(void *to, const void *from, size_t bytes) const {
        if (bytes == 0) return;
        CHECK_OK(tested->copy(get(), to, from, bytes));
        wait();
    }
    void wait() const { CHECK_OK(tested->synchronize(get())); }

private:
    OwnStream stream_;
};

// Memory of the GPU between guards, `shift` bytes off its alignment. All accesses run in the
// stream, because other ranks' streams may wait for this one.
class GuardedMemory {
public:
    GuardedMemory(const Stream &stream, size_t bytes, size_t shift = 0)
        : stream_(stream), bytes_(bytes), start_(guard + shift),
          held_(start_ + bytes + guard, filler) {
        const auto memory = tested->allocate_private(held_.size());
        CHECK_OK(memory);
        memory_ = *memory;
        stream_.copy(memory_, held_.data(), held_.size());
    }
    ~GuardedMemory() {
        if (memory_) tested->free_private(memory_);
    }
    GuardedMemory(const GuardedMemory &) = delete;

    std::byte *data() const { return memory_ + start_; }
    void write(const std::byte *from, size_t bytes, size_t at = 0) {
        stream_.copy(data() + at, from, bytes);
    }
    // Returns the first `bytes` bytes; fails if a guard is broken.
    const std::byte *read(size_t bytes) {
        stream_.copy(held_.data(), memory_, start_ + bytes);
        stream_.copy(held_.data() + start_ + bytes_, memory_ + start_ + bytes_, guard);
        const auto is_filler = [](std::byte b) { return b == filler; };
        CHECK(std::all_of(held_.begin(), held_.begin() + static_cast<long>(start_), is_filler));
        CHECK(std::all_of(held_.end() - guard, held_.end(), is_filler));
        return held_.data() + start_;
    }
    bool holds(const std::byte *wanted, size_t bytes) {
        return std::memcmp(read(bytes), wanted, bytes) == 0;
    }

private:
    static constexpr size_t guard = 256;
    static constexpr std::byte filler{0xE7};

    const Stream &stream_;
    const size_t bytes_, start_;
    std::vector<std::byte> held_;
    std::byte *memory_ = nullptr;
};

} // namespace real_gpu
