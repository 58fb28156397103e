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
    // No turn begins afterwards; waits for the one that is running, which is not this thread's.
    void close();

    bool is_closed();
    bool is_running_here();

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    uint64_t issued_ = 0; // under the gate; where await_next is used, under the mutex
    uint64_t done_ = 0;
    std::atomic<uint64_t> enqueued_{0}; // and not done
    std::thread::id runner_;            // of a turn that was awaited
    bool closed_ = false;
};

} // namespace qccl
