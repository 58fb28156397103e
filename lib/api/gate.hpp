// Who is inside a communicator: one thread of the caller's at a time, and none once it is closed.
// Lies in the handle's record, which outlives the communicator: a call with a handle that has ended
// is turned away here. Costs one locked instruction on the way in.
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

    // For the handle of this generation, and for no earlier one.
    void open(uint32_t generation) {
        is_closing_.store(false, std::memory_order_relaxed);
        owner_.store(no_thread, std::memory_order_relaxed);
        word_.store(idle(generation), std::memory_order_release);
    }

    Answer enter(uint32_t generation) {
        if (is_closing_.load(std::memory_order_relaxed)) return Answer::closed;
        return take(generation, taken);
    }
    // Another thread that is inside is waited for.
    Answer enter_after_others(uint32_t generation) {
        return after_others([=, this] { return enter(generation); });
    }
    void leave() {
        owner_.store(no_thread, std::memory_order_relaxed);
        // Does not change while a thread is inside.
        const uint64_t word = word_.load(std::memory_order_relaxed);
        word_.store(word - taken, std::memory_order_release);
    }

    // The caller's thread is inside, or has closed the gate.
    bool is_taken_by_caller() const { return owner_.load(std::memory_order_relaxed) == caller(); }
    // For the handle of this generation no thread can enter any more.
    bool is_closed(uint32_t generation) const {
        const uint64_t word = word_.load(std::memory_order_relaxed);
        return word != idle(generation) && word != idle(generation) + taken;
    }

    // No thread enters afterwards, if none is inside; anything but `inside` says which one is.
    Answer try_close(uint32_t generation) { return take(generation, shut); }
    // The same, but another thread that is inside is waited for, and does not come back.
    Answer close(uint32_t generation) {
        is_closing_.store(true, std::memory_order_relaxed);
        return after_others([=, this] { return try_close(generation); });
    }

private:
    // The word's last bits; the others are the generation.
    static constexpr uint64_t taken = 1, shut = 2, one_generation = 4;
    // glibc's thread handles are addresses.
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
    // Polls, so that leaving need not look for a thread that waits.
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
