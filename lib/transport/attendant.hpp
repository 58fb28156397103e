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
    // Both live as long. What goes wrong there fails the communicator.
    static Result<std::unique_ptr<Attendant>> start(Courier &courier, Verdict &verdict);
    ~Attendant();

    // The rank itself listens. Costs it a store each.
    void call_begins() { is_in_call_.store(true, std::memory_order_relaxed); }
    void call_ends() { is_in_call_.store(false, std::memory_order_relaxed); }

private:
    Attendant(Courier &courier, Verdict &verdict) : courier_(courier), verdict_(verdict) {}
    void attend();

    Courier &courier_;
    Verdict &verdict_;
    std::atomic<bool> is_in_call_{false};
    std::mutex mutex_;
    std::condition_variable leaving_;
    bool has_left_ = false;
    QuietThread thread_; // last: it uses the others
};

} // namespace qccl
