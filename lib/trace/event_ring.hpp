// A ring that carries events from the thread that runs calls to the thread that writes files. One
// writer and one reader at a time; neither ever blocks.
#pragma once

#include "trace/trace_event.hpp"

#include <atomic>
#include <cstddef>
#include <vector>

namespace qccl {

class EventRing {
public:
    // `capacity` is a power of two.
    explicit EventRing(size_t capacity) : events_(capacity) {}

    size_t capacity() const { return events_.size(); }

    // For the writer.
    //
    // Returns a lower bound of the number of free places. Reads the reader's progress only if the
    // last known progress leaves fewer than `wanted`.
    size_t room(size_t wanted) {
        if (capacity() - (head_ - seen_tail_) < wanted)
            seen_tail_ = tail_.load(std::memory_order_acquire);
        return capacity() - (head_ - seen_tail_);
    }
    // The writer has checked that there is room.
    void push(const TraceEvent &event) {
        events_[head_ & (capacity() - 1)] = event;
        shown_head_.store(++head_, std::memory_order_release);
    }

    uint64_t written() const { return head_; } // so far

    // For the reader: shown() is the number of events written so far, and drain() passes each event
    // before `end` to `take`.
    uint64_t shown() const { return shown_head_.load(std::memory_order_acquire); }
    template <class Take> void drain(uint64_t end, const Take &take) {
        uint64_t next = tail_.load(std::memory_order_relaxed);
        for (; next != end; next++) take(events_[next & (capacity() - 1)]);
        tail_.store(next, std::memory_order_release);
    }

private:
    std::vector<TraceEvent> events_;
    // The writer's cache line, then the reader's.
    alignas(64) uint64_t head_ = 0;
    uint64_t seen_tail_ = 0;
    std::atomic<uint64_t> shown_head_{0};
    alignas(64) std::atomic<uint64_t> tail_{0};
};

} // namespace qccl
