// The work in streams, the threads that do it, and captures. A stream's work runs in order, and
// each piece runs after the points of other streams that it waits for. A thread serves a stream as
// long as the stream has work that can run. A capture records the work that capturing streams are
// given as a graph: nodes in the order in which they were added, each with the nodes that it waits
// for.
//
// The caller holds one mutex, the runtime's, around every call here. The mutex is free while work
// runs.
#pragma once

#include "base/service_thread.hpp"
#include "kernels/runtime/emulated/emulated_memory.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace qccl::emulated {

// ---- Streams and workers

class Workers;
class Capture;
struct Stream;
using Lock = std::unique_lock<std::mutex>;

// The point that a stream reaches when a piece of work is done.
struct Point {
    bool is_done = false;
    Outcome outcome; // of the stream up to this point
    std::condition_variable done;
    std::vector<std::shared_ptr<Stream>> waiting;
};
using PointPtr = std::shared_ptr<Point>;

struct Dependency {
    PointPtr point;
    bool shares_failure = false;
};

struct Work {
    std::function<Outcome()> run; // empty: only reaches its point
    std::vector<Dependency> after;
    PointPtr point;
};

struct Stream {
    int device = 0;
    bool is_default = false; // waits for all blocking streams, and they wait for it
    bool is_blocking = false;
    int priority = 0;
    std::deque<Work> work;
    PointPtr last;   // of the last work put into the stream; null: none yet
    Outcome failure; // permanent
    bool is_served = false;
    std::shared_ptr<Capture> capture;
};
using StreamPtr = std::shared_ptr<Stream>;

class Workers {
public:
    explicit Workers(std::mutex &mutex) : mutex_(mutex) {}

    // Starts threads, so that `streams` more streams can be served at once. Fails if the system
    // refuses a thread.
    Outcome prepare(size_t streams);
    // Puts work behind the other work of `stream`. If the stream is idle and the work neither runs
    // nor waits for anything, its point is reached at once. Fails if the system refuses a thread.
    Outcome put(const StreamPtr &stream, Work work);
    static Outcome wait(Lock &lock, const PointPtr &point);

    void fail_work(uint64_t n, int32_t result) {
        fails_in_ = n;
        failure_ = result;
    }

private:
    void work_for_ever();
    void serve(const StreamPtr &stream, Lock &lock);
    Outcome run(std::function<Outcome()> body, Lock &lock);
    void come_by(Stream &stream, const Work &work, const Outcome &outcome);

    std::mutex &mutex_;
    std::condition_variable has_ready_;
    std::deque<StreamPtr> ready_; // with work that may be able to run now
    size_t served_ = 0;           // streams that have work
    std::vector<ServiceThread> threads_;
    uint64_t fails_in_ = 0;
    int32_t failure_ = 0;
};

// ---- Captures and graphs

struct Node {
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

struct Graph {
    std::vector<Node> nodes;
    UserObjects objects;
    size_t lanes = 1;
};

struct GraphExec {
    Graph graph;
    PointPtr last; // last launch of the graph
};

// A stream's position in a capture: the nodes that its next node waits for.
using Tips = std::vector<size_t>;

class Capture {
public:
    Capture(const Stream *origin, qcclEmulatedCaptureMode_t mode, uint64_t number)
        : number_(number), origin_(origin), mode_(mode), thread_(std::this_thread::get_id()) {
        join(origin, {});
    }

    uint64_t number() const { return number_; }
    void join(const Stream *stream, const Tips &tips);
    void add(const Stream *stream, std::function<Outcome()> run);
    // Returns a new empty object, which the caller fills in.
    UserObject &add_object() {
        objects_.push_back(std::make_shared<UserObject>());
        return *objects_.back();
    }
    const Tips &tips(const Stream *stream) const { return lanes_.at(stream).tips; }

    void spoil() { is_spoilt_ = true; }
    bool is_spoilt() const { return is_spoilt_; }
    // Returns true if a thread whose own mode is `own` must not wait for the GPU during the
    // capture.
    bool forbids(qcclEmulatedCaptureMode_t own) const;
    // Returns an error if the calling thread may not end the capture on `stream`.
    Outcome check_end(const Stream *stream) const;
    // Fills `graph` with the nodes and moves the user objects to it. Fails if the capture is
    // spoilt, or if a captured node does not lead back to the first stream; the capture then keeps
    // the objects.
    Outcome finish(Graph &graph);
    UserObjects take_objects() { return std::exchange(objects_, {}); }

private:
    struct Lane {
        size_t number = 0;
        Tips tips;
    };

    const uint64_t number_;
    const Stream *origin_;
    qcclEmulatedCaptureMode_t mode_;
    std::thread::id thread_;
    bool is_spoilt_ = false;
    std::vector<Node> nodes_;
    UserObjects objects_;
    std::map<const Stream *, Lane> lanes_;
};

} // namespace qccl::emulated
