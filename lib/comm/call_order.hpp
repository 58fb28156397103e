// The order of calls on one communicator and among the communicators of one process.
// CallSequencer is the order of calls on one communicator, across all streams: call n runs after
// call n - 1. Comm and its streams use it. A blocking call costs two loads and a store while
// nothing is enqueued. The await functions, close and the constructor of Hold block.
// SiblingComms holds the communicators that one qcclCommInitAll made. It detects a process whose
// only thread waits in one of them for a call that it would have to make itself. Any thread may use
// it.
#pragma once

#include "base/result.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace qccl {

// ---- One communicator

class CallSequencer {
public:
    // Numbers the next call. Requires the communicator's entry guard.
    uint64_t issue() { return ++issued_; }
    uint64_t issued() const { return issued_; }
    // Notes that the call just numbered will run on a stream.
    void enqueued() { enqueued_.fetch_add(1, std::memory_order_relaxed); }
    // The call just numbered will not run after all, and no later call will be numbered. Earlier
    // calls still get their turns.
    void forgo();

    bool is_idle() const { return enqueued_.load(std::memory_order_acquire) == 0; }

    // For a blocking call while nothing is enqueued. No thread can wait for this call, because a
    // thread that enqueues must hold the entry guard.
    void skip_to(uint64_t call) { done_ = call; }

    // Waits for the turn of `call`. Returns false if the communicator is closed; then nothing may
    // run.
    bool await(uint64_t call);
    // Waits for a turn and only then numbers the call, for calls whose order is not known before.
    // Returns nothing if the communicator is closed.
    std::optional<uint64_t> await_next();
    // Numbers another call, which has the turn as well that await_next has given this thread.
    uint64_t next_in_turn();
    // Ends the turn of `call`. `was_enqueued`: enqueued() has counted the call.
    void finish(uint64_t call, bool was_enqueued);

    // Waits until nothing is enqueued, or the communicator is closed.
    void await_all();
    // Gives all turns to the thread that creates it, for as long as the hold lives. No other
    // thread's turn begins meanwhile, even if a graph replays a call.
    class Hold {
    public:
        // Waits until the current turn ends.
        explicit Hold(CallSequencer &turns) : sequencer_(turns.hold() ? &turns : nullptr) {}
        Hold(Hold &&other) noexcept : sequencer_(std::exchange(other.sequencer_, nullptr)) {}
        ~Hold() {
            if (sequencer_) sequencer_->release();
        }
        // False if the communicator is closed.
        explicit operator bool() const { return sequencer_ != nullptr; }

    private:
        CallSequencer *sequencer_;
    };
    // No turn begins afterwards. Waits for the current turn, unless this thread has a hold.
    void close();

    bool is_closed();
    bool is_running_here();

private:
    bool hold();
    void release();
    // Requires the mutex. True if no thread has a turn, or this thread has a hold.
    bool may_begin() const {
        return runner_ == std::thread::id() || (is_held_ && runner_ == std::this_thread::get_id());
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t issued_ = 0; // changed inside the entry guard, or in awaited turns under the mutex
    uint64_t done_ = 0;
    std::atomic<uint64_t> enqueued_{0}; // and not finished
    std::thread::id runner_;            // thread with an awaited turn or a hold
    bool is_held_ = false;
    bool closed_ = false;
};

// ---- Communicators of one process

class SiblingComms {
public:
    explicit SiblingComms(uint32_t size) : issued_(size) {}

    void issued(uint32_t rank, uint64_t call) {
        issued_[rank].call.store(call, std::memory_order_relaxed);
    }
    // While one lives, a GPU may bring a call of the rank whose number is not known before: a
    // stream comes to it, or a graph replays it.
    class Expected {
    public:
        Expected(std::shared_ptr<SiblingComms> siblings, uint32_t rank)
            : siblings_(std::move(siblings)), rank_(rank) {
            count().fetch_add(1, std::memory_order_relaxed);
        }
        Expected(const Expected &) = delete;
        ~Expected() { count().fetch_sub(1, std::memory_order_release); }

    private:
        std::atomic<uint64_t> &count() const { return siblings_->issued_[rank_].expected; }
        const std::shared_ptr<SiblingComms> siblings_;
        const uint32_t rank_;
    };

    // Called by the thread that waits in the latest call of `rank`. Returns nothing if another
    // thread or a GPU could still make the missing call; threads whose names begin with
    // `threads_of_gpus` make none of their own.
    std::optional<Error> find_deadlock(uint32_t rank, std::string_view threads_of_gpus) const;

    // The same for a rank that waits for `sibling` to come to `what`, which is no call of theirs.
    static std::optional<Error> find_deadlock(uint32_t rank, uint32_t sibling, const char *what,
                                              std::string_view threads_of_gpus);

    // For a communicator of `size` ranks that some of these ranks make together. Ranks that pass
    // the same `number` and `eldest` get the same object.
    std::shared_ptr<SiblingComms> child_comm(uint64_t number, uint32_t eldest, uint32_t size);

private:
    struct alignas(64) Issued { // a cache line each: ranks write theirs in every call
        std::atomic<uint64_t> call{0};
        std::atomic<uint64_t> expected{0}; // objects that live
    };
    std::vector<Issued> issued_;
    std::mutex mutex_;
    std::map<std::pair<uint64_t, uint32_t>, std::weak_ptr<SiblingComms>> children_;
};

} // namespace qccl
