// The state of the emulated runtime (GPUs, memory, streams, events, graphs), the frame around every
// call of its C API, and the launch of kernels: QCCL's own kernels and those of programs. As on a
// GPU, QCCL's kernels fail if they access host memory that the GPU does not reach. Any thread may
// make the calls of the C API; one mutex guards the state, and callers of everything else here hold
// it. The mutex is free while the work of streams runs.
#pragma once

#include "base/exception_boundary.hpp"
#include "base/result.hpp"
#include "base/system.hpp"
#include "device/batch.hpp"
#include "qccl/emulated.h"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace qccl::emulated {

// ---- Outcomes

struct Outcome {
    qcclEmulatedResult_t result = qcclEmulatedSuccess;
    std::string sentence; // empty: the text of the result code says everything

    Outcome() = default;
    Outcome(int32_t code) : result(code) {}
    Outcome(int32_t code, std::string text) : result(code), sentence(std::move(text)) {}
    // Errors of the operating system are reported as a lack of memory.
    Outcome(const Error &error) : result(qcclEmulatedErrorMemoryAllocation), sentence(error.text) {}

    bool is_ok() const { return result == qcclEmulatedSuccess; }
};

// ---- Memory

inline constexpr int device_count = 8;
constexpr int lanes_of(int device) { return device % 2 == 0 ? 32 : 64; }

struct MemoryPiece {
    enum class Kind : uint8_t { device, pooled, host, registered, opened };
    Kind kind = Kind::device;
    int device = 0; // owner; host memory: the GPU of the thread that asked for it
    std::byte *base = nullptr;
    size_t bytes = 0;
    std::byte *mapping = nullptr; // address to unmap; null: nothing is unmapped
    size_t mapped_bytes = 0;
    FileDescriptor file;
    uint32_t uses = 1; // opened: opens that are not closed yet

    bool is_of_a_gpu() const {
        return kind == Kind::device || kind == Kind::pooled || kind == Kind::opened;
    }
    bool holds(const void *at, size_t count) const {
        const auto start = static_cast<size_t>(static_cast<const std::byte *>(at) - base);
        return start <= bytes && count <= bytes - start;
    }
};

class MemoryPieces {
public:
    // Allocates memory of a GPU, with guard bytes around it.
    Outcome allocate(MemoryPiece::Kind kind, int device, size_t bytes, void **memory);
    Outcome allocate_host(int device, size_t bytes, void **memory);
    Outcome register_host(int device, void *memory, size_t bytes);
    // Releases the piece that begins at `memory` and is of one of `kinds`, and checks its guard
    // bytes. Returns `refusal` if there is no such piece.
    Outcome release(void *memory, std::initializer_list<MemoryPiece::Kind> kinds, int32_t refusal);

    Outcome name(void *memory, qcclEmulatedIpcMemHandle_t *handle) const;
    Outcome open(const qcclEmulatedIpcMemHandle_t &handle, void **memory);
    Outcome close(void *memory);
    // Returns the GPU whose memory a handle names; -1 if the bytes are not a handle.
    static int device_of(const qcclEmulatedIpcMemHandle_t &handle);

    // Returns the piece that contains `at`; null if the GPUs do not know this memory.
    const MemoryPiece *find(const void *at) const;
    // Returns an error if something has written beside memory of the GPU.
    Outcome check_guards(int device) const;

    size_t count() const { return pieces_.size(); }
    void limit(size_t bytes) { limit_ = bytes; }

private:
    Outcome keep(MemoryPiece piece, void **memory);

    std::map<uintptr_t, MemoryPiece> pieces_; // by first byte
    std::array<size_t, device_count> used_{};
    size_t limit_ = SIZE_MAX;
};

// ---- Streams and workers

class Workers;
class Capture;
struct EmulatedStream;
using Lock = std::unique_lock<std::mutex>;

// The point that a stream reaches when a piece of work is done.
struct StreamPoint {
    bool is_done = false;
    Outcome outcome; // of the stream up to this point
    std::condition_variable done;
    std::vector<std::shared_ptr<EmulatedStream>> waiting;
};
using PointPtr = std::shared_ptr<StreamPoint>;

struct Dependency {
    PointPtr point;
    bool shares_failure = false;
};

struct StreamWork {
    std::function<Outcome()> run; // empty: only reaches its point
    std::vector<Dependency> after;
    PointPtr point;
};

struct EmulatedStream {
    int device = 0;
    bool is_default = false; // waits for all blocking streams, and they wait for it
    bool is_blocking = false;
    int priority = 0;
    std::deque<StreamWork> work;
    PointPtr last;   // of the last work put into the stream; null: none yet
    Outcome failure; // permanent
    bool is_served = false;
    std::shared_ptr<Capture> capture;
};
using StreamPtr = std::shared_ptr<EmulatedStream>;

class Workers {
public:
    explicit Workers(std::mutex &mutex) : mutex_(mutex) {}

    // Starts threads, so that `streams` more streams can be served at once. Fails if the system
    // refuses a thread.
    Outcome prepare(size_t streams);
    // Puts work behind the other work of `stream`. If the stream is idle and the work neither runs
    // nor waits for anything, its point is reached at once. Fails if the system refuses a thread.
    Outcome put(const StreamPtr &stream, StreamWork work);
    static Outcome wait(Lock &lock, const PointPtr &point);

    void fail_work(uint64_t n, int32_t result) {
        fails_in_ = n;
        failure_ = result;
    }

private:
    // A thread that waits for work. Each has a condition variable of its own: where several threads
    // wait on one, glibc before 2.41 can lose the signal that is to wake one of them (its bug
    // 25847).
    struct IdleThread {
        std::condition_variable called;
        bool is_called = false;
    };

    void work_for_ever();
    void make_ready(StreamPtr stream);
    void serve(const StreamPtr &stream, Lock &lock);
    Outcome run(std::function<Outcome()> body, Lock &lock);
    void come_by(EmulatedStream &stream, const StreamWork &work, const Outcome &outcome);

    std::mutex &mutex_;
    std::vector<IdleThread *> idle_;
    std::deque<StreamPtr> ready_; // with work that may be able to run now
    size_t served_ = 0;           // streams that have work
    std::vector<ServiceThread> threads_;
    uint64_t fails_in_ = 0;
    int32_t failure_ = 0;
};

// ---- Captures and graphs

struct CapturedNode {
    std::function<Outcome()> run;
    std::vector<size_t> after;
    size_t lane = 0; // nodes of one stream share a lane
};

// An object of the program, which `destroy` ends when the last holder of the object is gone.
struct UserObject {
    UserObject() = default;
    ~UserObject() {
        if (destroy) destroy(object);
    }
    UserObject(const UserObject &) = delete;

    qcclEmulatedHostFn_t destroy = nullptr;
    void *object = nullptr;
};
using UserObjects = std::vector<std::shared_ptr<UserObject>>;

struct CapturedGraph {
    std::vector<CapturedNode> nodes;
    UserObjects objects;
    size_t lanes = 1;
};

struct GraphExec {
    CapturedGraph graph;
    PointPtr last; // last launch of the graph
};

// A stream's position in a capture: the nodes that its next node waits for.
using Tips = std::vector<size_t>;

class Capture {
public:
    Capture(const EmulatedStream *origin, qcclEmulatedCaptureMode_t mode, uint64_t number)
        : number_(number), origin_(origin), mode_(mode), thread_(std::this_thread::get_id()) {
        join(origin, {});
    }

    uint64_t number() const { return number_; }
    void join(const EmulatedStream *stream, const Tips &tips);
    void add(const EmulatedStream *stream, std::function<Outcome()> run);
    // Returns a new empty object, which the caller fills in.
    UserObject &add_object() {
        objects_.push_back(std::make_shared<UserObject>());
        return *objects_.back();
    }
    const Tips &tips(const EmulatedStream *stream) const { return lanes_.at(stream).tips; }

    void spoil() { is_spoilt_ = true; }
    bool is_spoilt() const { return is_spoilt_; }
    // Returns true if a thread whose own mode is `own` must not wait for the GPU during the
    // capture.
    bool forbids(qcclEmulatedCaptureMode_t own) const;
    // Returns an error if the calling thread may not end the capture on `stream`.
    Outcome check_end(const EmulatedStream *stream) const;
    // Fills `graph` with the nodes and moves the user objects to it. Fails if the capture is
    // spoilt, or if a captured node does not lead back to the first stream; the capture then keeps
    // the objects.
    Outcome finish(CapturedGraph &graph);
    UserObjects take_objects() { return std::exchange(objects_, {}); }

private:
    struct CapturedLane {
        size_t number = 0;
        Tips tips;
    };

    const uint64_t number_;
    const EmulatedStream *origin_;
    qcclEmulatedCaptureMode_t mode_;
    std::thread::id thread_;
    bool is_spoilt_ = false;
    std::vector<CapturedNode> nodes_;
    UserObjects objects_;
    std::map<const EmulatedStream *, CapturedLane> lanes_;
};

// ---- State and calls

struct EmulatedEvent {
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
    StreamPtr captor(const EmulatedStream &stream) const;
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
    MemoryPieces pieces;
    Workers workers{mutex};
    std::map<const void *, StreamPtr> streams; // by handle
    std::map<const void *, std::unique_ptr<EmulatedEvent>> events;
    std::map<const void *, std::unique_ptr<CapturedGraph>> graphs;
    std::map<const void *, std::unique_ptr<GraphExec>> execs;
    std::set<std::shared_ptr<Capture>> captures;
    uint64_t captures_begun = 0;
    std::array<std::array<bool, device_count>, device_count> peers{};
    bool are_peers_forbidden = false;
    std::array<PciSlot, device_count> slots{};
    uint64_t calls = 0, fails_in = 0;
    int32_t failure = 0;

private:
    std::vector<Dependency> default_order(const EmulatedStream &stream);

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
