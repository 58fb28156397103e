// The order of calls on one communicator, whatever streams they are on: call n runs when call n - 1
// has. Knows no calls but by number; costs a blocking call two loads and a store while nothing is
// enqueued.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace qccl {

class Turns {
public:
    // Under the communicator's gate: numbers the next call.
    uint64_t issue() { return ++issued_; }
    uint64_t issued() const { return issued_; }
    // The call just numbered will run on a stream.
    void enqueued() { enqueued_.fetch_add(1, std::memory_order_relaxed); }
    // It will not, after all, and no call will be numbered after it: those before have their turns.
    void forgo();

    bool is_idle() const { return enqueued_.load(std::memory_order_acquire) == 0; }

    // A blocking call while nothing is enqueued: nobody can be waiting for it, because whoever
    // would enqueue must enter the gate first.
    void skip_to(uint64_t call) { done_ = call; }

    // Waits for the turn of `call`; false: the communicator is closed, and nothing may run.
    bool await(uint64_t call);
    // Numbers the next call when it is its turn, where it is known only then which one is next;
    // nothing: the communicator is closed.
    std::optional<uint64_t> await_next();
    void finish(uint64_t call, bool was_enqueued);

    // Until nothing is enqueued, or the communicator is closed.
    void await_all();
    // Gives all turns to the thread that makes it, as long as it lives: no turn of another thread
    // begins, also where a graph replays a call.
    class Hold {
    public:
        // Waits for the turn that is running.
        explicit Hold(Turns &turns) : turns_(turns.hold() ? &turns : nullptr) {}
        Hold(Hold &&other) noexcept : turns_(std::exchange(other.turns_, nullptr)) {}
        ~Hold() {
            if (turns_) turns_->release();
        }
        // False: the communicator is closed.
        explicit operator bool() const { return turns_ != nullptr; }

    private:
        Turns *turns_;
    };
    // No turn begins afterwards; waits for the one that is running, unless this thread holds them.
    void close();

    bool is_closed();
    bool is_running_here();

private:
    bool hold();
    void release();
    // With the mutex: no thread has a turn, or this one holds all.
    bool may_begin() const {
        return runner_ == std::thread::id() || (is_held_ && runner_ == std::this_thread::get_id());
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t issued_ = 0; // under the gate; where await_next is used, under the mutex
    uint64_t done_ = 0;
    std::atomic<uint64_t> enqueued_{0}; // and not done
    std::thread::id runner_;            // of a turn that was awaited, or of the hold
    bool is_held_ = false;
    bool closed_ = false;
};

} // namespace qccl
