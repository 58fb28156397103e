// The work in streams, and the threads that do it. A stream's work runs in order, and each piece
// runs after the points of other streams that it waits for. A thread serves a stream as long as the
// stream has work that can run.
//
// The caller holds one mutex, the runtime's, around every call here. The mutex is free while work
// runs.
#pragma once

#include "base/service_thread.hpp"
#include "kernels/emulated_runtime/outcome.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace qccl::emulated {

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

} // namespace qccl::emulated
