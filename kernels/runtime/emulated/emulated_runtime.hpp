// The state of the emulated runtime (GPUs, memory, streams, events, graphs), the frame around every
// call of its C API, and the launch of kernels: QCCL's own kernels and those of programs. As on a
// GPU, QCCL's kernels fail if they access host memory that the GPU does not reach. Any thread may
// make the calls of the C API; one mutex guards the state.
#pragma once

#include "base/exception_boundary.hpp"
#include "device/batch.hpp"
#include "device/kernel_list.hpp"
#include "kernels/runtime/emulated/emulated_memory.hpp"
#include "kernels/runtime/emulated/emulated_streams.hpp"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <unistd.h>

namespace qccl::emulated {

// ---- State and calls

struct Event {
    int device = 0;
    PointPtr point;                   // null: nothing to wait for
    std::shared_ptr<Capture> capture; // capture in which it was recorded
    Tips tips;
};

// How a call is treated.
struct Manner {
    bool counts = true;    // counted, and can be made to fail
    bool may_wait = false; // may wait for the GPU, which spoils captures
};
inline constexpr Manner asks{}, waits{.may_wait = true}, gives_back{.counts = false},
    waits_and_gives_back{.counts = false, .may_wait = true}, tells{.counts = false};

struct PciSlot {
    int domain = -1, bus = -1, device = -1; // -1: no slot
};

class Runtime {
public:
    // Returns the process's runtime. A program and the QCCL that it uses share nothing but this
    // library, and both must see the same GPUs. The runtime is never deleted, because threads serve
    // streams until the process ends.
    static Runtime &current();
    static void begin_again();

    Runtime();

    bool is_of_this_process() const { return process_ == getpid(); }
    // Returns an error if the call is refused. The caller holds the mutex for this and all
    // functions below.
    Outcome admit(const Manner &manner);

    // Returns the stream of a handle; null if `handle` is not a stream.
    StreamPtr stream(qcclEmulatedStream_t handle);
    StreamPtr create_stream(bool is_blocking);
    void destroy_stream(const StreamPtr &stream);
    // Puts work into a stream, behind everything that it must wait for: `after` and the order of
    // the default stream. `run` may be empty. A stream that captures records the work instead.
    Outcome put(const StreamPtr &stream, std::function<Outcome()> run,
                std::vector<Dependency> after = {});
    // Spoils the stream's capture and returns `result`.
    Outcome refuse_capture(const StreamPtr &stream, int32_t result);
    // Returns a capturing stream that `stream`, a default stream, would have to wait for; null if
    // there is none.
    StreamPtr captor(const Stream &stream) const;
    void end_capture(const std::shared_ptr<Capture> &capture);
    // Returns the last point of each stream of a GPU that still has work.
    std::vector<PointPtr> everything(int device);
    Outcome wait_for_everything(Lock &lock, int device);
    // Returns the result of a call that has waited: `outcome`, or the error of the guard bytes'
    // check.
    Outcome waited(int device, Outcome outcome);

    // Returns true if a kernel of the GPU can access these bytes.
    bool reaches(int device, const void *at, size_t bytes) const;
    // Returns false if the bytes begin in memory of a GPU but extend beyond it.
    bool is_whole(const void *at, size_t bytes) const;

    std::mutex mutex;
    Pieces pieces;
    Workers workers{mutex};
    std::map<const void *, StreamPtr> streams; // by handle
    std::map<const void *, std::unique_ptr<Event>> events;
    std::map<const void *, std::unique_ptr<Graph>> graphs;
    std::map<const void *, std::unique_ptr<GraphExec>> execs;
    std::set<std::shared_ptr<Capture>> captures;
    uint64_t captures_begun = 0;
    std::array<std::array<bool, device_count>, device_count> peers{};
    bool are_peers_forbidden = false;
    std::array<PciSlot, device_count> slots{};
    uint64_t calls = 0, fails_in = 0;
    int32_t failure = 0;

private:
    std::vector<Dependency> default_order(const Stream &stream);

    pid_t process_ = getpid();
    std::array<StreamPtr, device_count> defaults_;
    std::set<StreamPtr> all_; // also streams of threads, and destroyed streams that still have work
};

// The state of one thread.
struct Self {
    ~Self();
    // Returns the thread's own stream on its current GPU; creates it at the first call.
    StreamPtr own_stream(Runtime &runtime);

    int device = 0;
    qcclEmulatedCaptureMode_t mode = qcclEmulatedCaptureModeGlobal;
    bool is_in_host_function = false;
    bool is_in_kernel = false; // of a program
    std::string sentence;

private:
    Runtime *runtime_ = nullptr; // owner of the streams in own_
    std::array<StreamPtr, device_count> own_;
};
Self &self();

// told() returns the result code of an outcome and keeps its sentence for the thread. called() runs
// the body of a C API call with the mutex held, unless the call is refused, and returns the result
// code.
qcclEmulatedResult_t told(const Outcome &outcome);
template <class Body> qcclEmulatedResult_t called(const Manner &manner, Body &&body) {
    return told(exception_boundary([&]() -> Outcome {
        Runtime &runtime = Runtime::current();
        if (!runtime.is_of_this_process())
            return {qcclEmulatedErrorInitialization,
                    "this process was forked from one that used the GPUs"};
        Lock lock(runtime.mutex);
        if (Outcome refused = runtime.admit(manner); !refused.is_ok()) return refused;
        return body(runtime, lock);
    }));
}

// ---- Kernel launches

// Puts one of QCCL's kernels into a stream. Behaves like a call of the C API: takes the runtime's
// mutex and may be called from any thread.
qcclEmulatedResult_t launch(qcclEmulatedStream_t stream, KernelId kernel, unsigned blocks,
                            const Batch &batch);

// Puts a program's kernel into a stream and copies `bytes` bytes of its argument. The caller holds
// the runtime's mutex.
Outcome put_kernel(Runtime &runtime, const StreamPtr &stream, qcclEmulatedKernel_t kernel,
                   unsigned blocks, unsigned threads, const void *argument, size_t bytes);

} // namespace qccl::emulated
