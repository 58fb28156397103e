// Answers ranks of other hosts while this rank is in no call: those who wait ask where everybody
// is, and whoever only computes for a while would not hear them.
#pragma once

#include "base/quiet_thread.hpp"
#include "transport/courier.hpp"

#include <condition_variable>
#include <mutex>

namespace qccl {

class Attendant {
public:
    // The courier lives as long.
    static Result<std::unique_ptr<Attendant>> start(Courier &courier);
    ~Attendant();

    // The rank itself listens. Costs it a store each.
    void call_begins() { is_in_call_.store(true, std::memory_order_relaxed); }
    void call_ends() { is_in_call_.store(false, std::memory_order_relaxed); }

private:
    explicit Attendant(Courier &courier) : courier_(courier) {}
    void attend();

    Courier &courier_;
    std::atomic<bool> is_in_call_{false};
    std::mutex mutex_;
    std::condition_variable leaving_;
    bool has_left_ = false;
    QuietThread thread_; // last: it uses the others
};

} // namespace qccl
