#include "transport/attendant.hpp"

#include "base/contained.hpp"

namespace qccl {

// Short beside what an answer is waited for, and nothing beside what a core does in that time.
static constexpr auto between_looks = std::chrono::milliseconds(100);

Result<std::unique_ptr<Attendant>> Attendant::start(Courier &courier, Verdict &verdict) {
    std::unique_ptr<Attendant> attendant(new Attendant(courier, verdict));
    QCCL_TRY(attendant->thread_,
             QuietThread::start("qccl-attendant", [raw = attendant.get()] { raw->attend(); }));
    return attendant;
}

Attendant::~Attendant() {
    {
        const std::lock_guard guard(mutex_);
        has_left_ = true;
    }
    leaving_.notify_all();
}

// Not in a call: what one of two threads has dealt with does not wake the other.
void Attendant::attend() {
    std::unique_lock lock(mutex_);
    while (!leaving_.wait_for(lock, between_looks, [&] { return has_left_; })) {
        if (is_in_call_.load(std::memory_order_relaxed)) continue;
        const Done progressed = contained([&]() -> Done {
            courier_.progress();
            return {};
        });
        if (!progressed) (void)verdict_.pass(progressed.error());
    }
}

} // namespace qccl
