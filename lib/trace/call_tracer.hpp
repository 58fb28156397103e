// One communicator's calls on one rank, as they are traced: numbers the shapes of calls and puts
// events where the trace's thread finds them. Used by the thread that runs the communicator's calls
// (one at a time) and by the trace's thread; never waits, and leaves out what finds no room.
#pragma once

#include "record/call_log.hpp"
#include "trace/event_ring.hpp"

#include <atomic>
#include <mutex>
#include <semaphore>
#include <unordered_map>
#include <vector>

namespace qccl {

class CallTracer {
public:
    // What the trace's thread sleeps on; released when there is much to read.
    using Wake = std::counting_semaphore<>;

    // `wants_steps`: what a call does is traced, too, not only that it was made. `wake` outlives
    // the tracer's use.
    CallTracer(LoggedComm comm, bool wants_steps, Wake &wake);

    const LoggedComm &comm() const { return comm_; }

    // For the thread that runs calls.
    //
    // The number of the shape that was added under this key; 0: none was.
    uint32_t find_shape(uint64_t key) const {
        const auto found = shapes_.find(key);
        return found == shapes_.end() ? 0 : found->second;
    }
    uint32_t add_shape(uint64_t key, LoggedShape shape);

    struct CallStart {
        uint64_t number = 0, tag = 0;
        uint32_t shape = 0;
        uint64_t queued = 0; // ticks when it was given to a stream; 0: to none
    };
    // True: the call's steps are to be added. Every call that begins also ends.
    bool begin(const CallStart &call);
    // `event` has all but the call's number and shape.
    void add(TraceEvent event) {
        event.call = call_.call;
        event.shape = call_.shape;
        if (ring_.room(2) < 2) // the last place is the call's end's
            left_out_++;
        else
            ring_.push(event);
    }
    void end(bool has_failed);

    // For the trace's thread.
    //
    // Of every so many groups of calls one is traced: the power of two that the trace has time for.
    // All ranks trace the same groups where they leave out equally many, and else some of the same.
    static constexpr uint64_t group_of_calls = 64;
    void trace_every(uint64_t groups) {
        skipped_groups_.store(groups - 1, std::memory_order_relaxed);
    }
    // Calls that come have one of so many latest shapes, or a new one: shapes may change without
    // end, and those that come again after that get another number.
    static constexpr size_t most_shapes_known = 4096;
    EventRing &ring() { return ring_; }
    std::vector<LoggedShape> take_new_shapes();
    // Calls that have ended without an event, so far.
    uint64_t lost() const { return lost_.load(std::memory_order_relaxed); }
    void close() { is_closed_.store(true, std::memory_order_release); }
    bool is_closed() const { return is_closed_.load(std::memory_order_acquire); }

private:
    static constexpr size_t events = 16384;

    const LoggedComm comm_;
    const bool wants_steps_;
    Wake &wake_;
    EventRing ring_{events};
    uint64_t woken_at_ = 0; // events written
    TraceEvent call_;       // that has begun
    uint32_t left_out_ = 0;
    bool has_begin_ = false; // in the ring
    std::unordered_map<uint64_t, uint32_t> shapes_;
    uint32_t last_shape_ = 0;
    std::atomic<uint64_t> skipped_groups_{0}, lost_{0};
    std::atomic<bool> is_closed_{false};
    std::mutex mutex_;
    std::vector<LoggedShape> new_shapes_; // with the mutex
};

} // namespace qccl
