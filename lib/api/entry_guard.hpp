// Admits one thread of the caller to a communicator at a time, and none once it is closed. The
// guard lies in the handle's record, which outlives the communicator, so that a call with an ended
// handle is refused here. Entering costs one locked instruction. Any thread may use it;
// enter_after_others and close wait for other threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <pthread.h>

namespace qccl {

class EntryGuard {
public:
    enum class Answer : uint8_t { inside, taken_by_other, taken_by_caller, closed };

    // Opens the guard for the handle of this generation, and for no earlier handle.
    void open(uint32_t generation) {
        is_closing_.store(false, std::memory_order_relaxed);
        owner_.store(no_thread, std::memory_order_relaxed);
        word_.store(idle(generation), std::memory_order_release);
    }

    Answer enter(uint32_t generation) {
        if (is_closing_.load(std::memory_order_relaxed)) return Answer::closed;
        return take(generation, taken);
    }
    // Waits for another thread that is inside.
    Answer enter_after_others(uint32_t generation) {
        return after_others([=, this] { return enter(generation); });
    }
    void leave() {
        owner_.store(no_thread, std::memory_order_relaxed);
        // The word does not change while a thread is inside.
        const uint64_t word = word_.load(std::memory_order_relaxed);
        word_.store(word - taken, std::memory_order_release);
    }

    // Whether the calling thread is inside, or has closed the guard.
    bool is_taken_by_caller() const { return owner_.load(std::memory_order_relaxed) == caller(); }
    // Whether the handle of this generation can no longer enter.
    bool is_closed(uint32_t generation) const {
        const uint64_t word = word_.load(std::memory_order_relaxed);
        return word != idle(generation) && word != idle(generation) + taken;
    }

    // Closes the guard if no thread is inside, and then returns `inside`. Any other answer says why
    // the guard is not closed by this call.
    Answer try_close(uint32_t generation) { return take(generation, shut); }
    // The same, but waits for another thread that is inside, which cannot enter again.
    Answer close(uint32_t generation) {
        is_closing_.store(true, std::memory_order_relaxed);
        return after_others([=, this] { return try_close(generation); });
    }

private:
    // States in the last two bits of the word; the other bits are the generation.
    static constexpr uint64_t taken = 1, shut = 2, one_generation = 4;
    // glibc's thread handles are addresses, so no thread has 0.
    static constexpr uint64_t no_thread = 0;

    static uint64_t idle(uint32_t generation) { return generation * one_generation; }
    static uint64_t caller() { return static_cast<uint64_t>(pthread_self()); }

    Answer take(uint32_t generation, uint64_t state) {
        uint64_t found = idle(generation);
        if (word_.compare_exchange_strong(found, found + state, std::memory_order_acquire)) {
            owner_.store(caller(), std::memory_order_relaxed);
            return Answer::inside;
        }
        if (found != idle(generation) + taken) return Answer::closed;
        return is_taken_by_caller() ? Answer::taken_by_caller : Answer::taken_by_other;
    }
    // Polls, so that leave() need not look for waiting threads.
    template <class Attempt> static Answer after_others(Attempt attempt) {
        Answer answer = attempt();
        while (answer == Answer::taken_by_other) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            answer = attempt();
        }
        return answer;
    }

    std::atomic<uint64_t> word_{shut};
    std::atomic<uint64_t> owner_{no_thread};
    std::atomic<bool> is_closing_{false};
};

} // namespace qccl
