// Helpers of GPU tests: opens the emulated module, runs a child process with a runtime of its own,
// and gives both processes common host memory.
#pragma once

#include "tests/kit/qtest.hpp"

#include "device/gpu.hpp"

#include "qccl/emulated.h"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" qccl::GpuModuleFunction qccl_gpu_module;

namespace gpu_kit {

inline std::unique_ptr<qccl::Gpu> open_gpu(uint32_t number) {
    qccl::Error error;
    std::unique_ptr<qccl::Gpu> gpu(qccl_gpu_module()->open(number, &error));
    if (!gpu) throw qtest::Failure{error.text};
    return gpu;
}

// A kernel's task: sink[i] = a[i] + b[i] for `count` floats.
inline qccl::Batch sum_of(float *sink, const float *a, const float *b, uint64_t count) {
    qccl::Batch batch;
    batch.tensors = 1;
    batch.tensor[0] = {.first_source = 1, .sources = 2, .count = count, .noise = {}};
    const auto plain = [](const float *at) {
        qccl::Operand operand;
        operand.at = reinterpret_cast<std::byte *>(const_cast<float *>(at));
        return operand;
    };
    batch.operand[0] = plain(sink);
    batch.operand[1] = plain(a);
    batch.operand[2] = plain(b);
    return batch;
}

// An object in memory that this process shares with the processes that it forks.
template <class T> class Common {
public:
    Common()
        : memory_(
              mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
        CHECK(memory_ != MAP_FAILED);
    }
    ~Common() { munmap(memory_, sizeof(T)); }
    Common(const Common &) = delete;
    Common &operator=(const Common &) = delete;
    T *operator->() { return static_cast<T *>(memory_); }
    T &operator*() { return *static_cast<T *>(memory_); }

private:
    void *memory_;
};

// Runs `body` in a child process with a fresh runtime, waits for it, and throws the child's
// failure.
template <class Body> void in_child(Body &&body) {
    Common<char[2048]> said;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        qcclEmulatedBeginAgain();
        try {
            body();
        } catch (const qtest::Failure &failure) {
            snprintf(*said, sizeof *said, "in the child: %s", failure.text.c_str());
        }
        _exit((*said)[0] == 0 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0)
        throw qtest::Failure{(*said)[0] != 0 ? *said
                                             : "the child ended with " + std::to_string(status)};
}

// Checks that the test has released every resource of the runtime that it took.
class Ledger {
public:
    Ledger() : held_(qcclEmulatedCountHeld()) {}
    // `lasting`: the number of resources that live as long as the process.
    void check(size_t lasting = 0) const { CHECK_EQ(qcclEmulatedCountHeld(), held_ + lasting); }

private:
    size_t held_;
};

inline void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

} // namespace gpu_kit
