// Who is inside a communicator: one thread of the caller's at a time, and nobody once it is closed.
// Costs one locked instruction on the way in.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <pthread.h>

namespace qccl {

class Gate {
public:
    enum class Answer : uint8_t { inside, taken_by_other, taken_by_caller, closed };

    Answer enter() { return take(caller()); }
    // Another thread that is inside is waited for.
    Answer enter_after_others() {
        return after_others([this] { return enter(); });
    }
    void leave() { inside_.store(nobody, std::memory_order_release); }

    bool is_taken_by_caller() const { return inside_.load(std::memory_order_relaxed) == caller(); }

    // No one enters afterwards, if nobody is inside; anything but `inside` says who is.
    Answer try_close() { return take(shut); }
    // The same, but another thread that is inside is waited for.
    Answer close() {
        return after_others([this] { return try_close(); });
    }

private:
    static constexpr uint64_t nobody = 0, shut = 1;

    // glibc's thread handles are addresses: never 0 or 1.
    static uint64_t caller() { return static_cast<uint64_t>(pthread_self()); }

    Answer take(uint64_t taker) {
        uint64_t found = nobody;
        if (inside_.compare_exchange_strong(found, taker, std::memory_order_acquire))
            return Answer::inside;
        if (found == shut) return Answer::closed;
        return found == caller() ? Answer::taken_by_caller : Answer::taken_by_other;
    }
    // Polls, so that leaving need not look for somebody who waits.
    template <class Attempt> static Answer after_others(Attempt attempt) {
        Answer answer = attempt();
        while (answer == Answer::taken_by_other) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            answer = attempt();
        }
        return answer;
    }

    std::atomic<uint64_t> inside_{nobody};
};

} // namespace qccl
