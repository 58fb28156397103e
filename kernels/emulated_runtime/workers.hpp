// Work in streams, and the threads that do it. A stream's work is done in order, each piece after
// what it waits for in other streams; a thread serves a stream as long as there is something that
// can be done. Knows neither memory nor graphs.
//
// One mutex, the runtime's, is held around every call here, and around nothing that work does.
#pragma once

#include "base/quiet_thread.hpp"
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

// Where a stream comes by when a piece of work is done.
struct Point {
    bool is_done = false;
    Outcome outcome; // of the stream up to here
    std::condition_variable done;
    std::vector<std::shared_ptr<Stream>> waiting;
};
using PointPtr = std::shared_ptr<Point>;

struct Dependency {
    PointPtr point;
    bool shares_failure = false;
};

struct Work {
    std::function<Outcome()> run; // none: only comes by
    std::vector<Dependency> after;
    PointPtr point;
};

struct Stream {
    int device = 0;
    bool is_default = false; // waits for all that are blocking, and they for it
    bool is_blocking = false;
    int priority = 0;
    std::deque<Work> work;
    PointPtr last;   // put into it; null: nothing yet
    Outcome failure; // for ever
    bool is_served = false;
    std::shared_ptr<Capture> capture;
};
using StreamPtr = std::shared_ptr<Stream>;

class Workers {
public:
    explicit Workers(std::mutex &mutex) : mutex_(mutex) {}

    // So many more streams can be served at once; an error where the system refuses a thread.
    Outcome prepare(size_t streams);
    // The first thing that `stream` does then.
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
    std::deque<StreamPtr> ready_; // with work that might be done now
    size_t served_ = 0;           // streams that have work
    std::vector<QuietThread> threads_;
    uint64_t fails_in_ = 0;
    int32_t failure_ = 0;
};

} // namespace qccl::emulated
