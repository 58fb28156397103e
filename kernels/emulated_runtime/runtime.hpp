// The state of the emulated runtime: GPUs, memory, streams, events, graphs, and how calls of its C
// API go. Knows no kernels.
#pragma once

#include "base/contained.hpp"
#include "kernels/emulated_runtime/capture.hpp"
#include "kernels/emulated_runtime/workers.hpp"
#include "kernels/emulated_runtime/pieces.hpp"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <unistd.h>

namespace qccl::emulated {

struct Event {
    int device = 0;
    PointPtr point;                   // null: nothing to wait for
    std::shared_ptr<Capture> capture; // recorded there
    Tips tips;
};

// How a call is to be treated.
struct Manner {
    bool counts = true;    // and can be made to fail
    bool may_wait = false; // for the GPU: spoils captures
};
inline constexpr Manner asks{}, waits{.may_wait = true}, gives_back{.counts = false},
    waits_and_gives_back{.counts = false, .may_wait = true}, tells{.counts = false};

struct PciSlot {
    int domain = -1, bus = -1, device = -1; // none
};

class Runtime {
public:
    // The process's: a GPU is the same for a program and for the QCCL that it uses, who meet in
    // nothing but this library. It is never deleted, because threads serve streams to the end.
    static Runtime &current();
    static void begin_again();

    Runtime();

    bool is_of_this_process() const { return process_ == getpid(); }
    // With the mutex held, as everything below.
    Outcome admit(const Manner &manner);

    // Of a handle; null: `handle` is none.
    StreamPtr stream(qcclEmulatedStream_t handle);
    StreamPtr create_stream(bool is_blocking);
    void destroy_stream(const StreamPtr &stream);
    // Work, or none, behind all that it has to wait for.
    Outcome put(const StreamPtr &stream, std::function<Outcome()> run,
                std::vector<Dependency> after = {});
    // Spoils the stream's capture.
    Outcome refuse_capture(const StreamPtr &stream, int32_t result);
    // A stream that captures and that a default stream would wait for; null: none.
    StreamPtr captor(const Stream &stream) const;
    void end_capture(const std::shared_ptr<Capture> &capture);
    // What a GPU has to do just now.
    std::vector<PointPtr> everything(int device);
    Outcome wait_for_everything(Lock &lock, int device);
    // What a call that waits has to say, after what it waited for has ended so.
    Outcome waited(int device, Outcome outcome);

    // Whether a kernel of the GPU can touch it.
    bool reaches(int device, const void *at, size_t bytes) const;
    // Whether it is not partly beside memory of a GPU.
    bool is_whole(const void *at, size_t bytes) const;

    std::mutex mutex;
    Pieces pieces;
    Workers workers{mutex};
    std::map<const void *, StreamPtr> streams; // that were given out
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
    std::set<StreamPtr> all_; // also of threads, and destroyed ones that have work
};

// What each thread has for itself.
struct Self {
    ~Self();
    // Its stream on the GPU of its choice.
    StreamPtr own_stream(Runtime &runtime);

    int device = 0;
    qcclEmulatedCaptureMode_t mode = qcclEmulatedCaptureModeGlobal;
    bool is_in_host_function = false;
    bool is_in_kernel = false; // of a program
    std::string sentence;

private:
    Runtime *runtime_ = nullptr; // whose streams these are
    std::array<StreamPtr, device_count> own_;
};
Self &self();

// What a function of the C API returns: the body's outcome, unless the call is refused.
qcclEmulatedResult_t told(const Outcome &outcome);
template <class Body> qcclEmulatedResult_t called(const Manner &manner, Body &&body) {
    return told(contained([&]() -> Outcome {
        Runtime &runtime = Runtime::current();
        if (!runtime.is_of_this_process())
            return {qcclEmulatedErrorInitialization,
                    "this process was forked from one that used the GPUs"};
        Lock lock(runtime.mutex);
        if (Outcome refused = runtime.admit(manner); !refused.is_ok()) return refused;
        return body(runtime, lock);
    }));
}

} // namespace qccl::emulated
