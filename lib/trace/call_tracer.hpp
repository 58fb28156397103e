// Traces the calls of one communicator on one rank: numbers the shapes of calls and puts events
// where the trace's thread finds them. Used by the thread that runs the communicator's calls (one
// at a time) and by the trace's thread. Never blocks, and leaves out events for which there is no
// room.
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
    // The trace's thread sleeps on this; released when there is much to read.
    using Wake = std::counting_semaphore<>;

    // `wants_steps`: the steps of a call are traced, too, not only the call. `wake` must outlive
    // the use of the tracer.
    CallTracer(LoggedComm comm, bool wants_steps, Wake &wake);

    const LoggedComm &comm() const { return comm_; }

    // For the thread that runs calls.
    //
    // Returns the number of the shape that was added under this key; 0: none was.
    uint32_t find_shape(uint64_t key) const {
        const auto found = shapes_.find(key);
        return found == shapes_.end() ? 0 : found->second;
    }
    uint32_t add_shape(uint64_t key, LoggedShape shape);

    struct CallStart {
        uint64_t number = 0, tag = 0;
        uint32_t shape = 0;
        uint64_t queued = 0; // ticks when it was given to a stream; 0: not in a stream
    };
    // Returns true if the call's steps are to be added. Every call that begins must also end.
    bool begin(const CallStart &call);
    // `event` has everything but the call's number and shape.
    void add(TraceEvent event) {
        event.call = call_.call;
        event.shape = call_.shape;
        if (ring_.room(2) < 2) // the last place is for the call's end
            left_out_++;
        else
            ring_.push(event);
    }
    void end(bool has_failed);

    // For the trace's thread.
    //
    // One of every `groups` groups of calls is traced; `groups` is the power of two that the
    // trace's thread has time for. All ranks trace the same groups if they leave out equally many,
    // and otherwise at least some of the same.
    static constexpr uint64_t group_of_calls = 64;
    void trace_every(uint64_t groups) {
        skipped_groups_.store(groups - 1, std::memory_order_relaxed);
    }
    // A new call has one of this many latest shapes, or a new one. Shapes may change without end; a
    // shape that recurs after that many others gets another number.
    static constexpr size_t most_shapes_known = 4096;
    EventRing &ring() { return ring_; }
    std::vector<LoggedShape> take_new_shapes();
    // Number of calls so far that have ended without an event.
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
    TraceEvent call_;       // the call that has begun
    uint32_t left_out_ = 0;
    bool has_begin_ = false; // the ring has its call_begin
    std::unordered_map<uint64_t, uint32_t> shapes_;
    uint32_t last_shape_ = 0;
    std::atomic<uint64_t> skipped_groups_{0}, lost_{0};
    std::atomic<bool> is_closed_{false};
    std::mutex mutex_;
    std::vector<LoggedShape> new_shapes_; // guarded by mutex_
};

} // namespace qccl
