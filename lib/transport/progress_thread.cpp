// The loop of the progress thread.
#include "transport/progress_thread.hpp"

#include "base/exception_boundary.hpp"

namespace qccl {

// Short compared with how long a rank waits for an answer, and long enough to cost the core
// nothing.
static constexpr auto between_looks = std::chrono::milliseconds(100);

Result<std::unique_ptr<ProgressThread>> ProgressThread::start(RemoteEndpoint &remote,
                                                              AfterLook after_look) {
    std::unique_ptr<ProgressThread> progress_thread(
        new ProgressThread(remote, std::move(after_look)));
    QCCL_TRY(progress_thread->thread_,
             ServiceThread::start("qccl-progress", [raw = progress_thread.get()] { raw->run(); }));
    return progress_thread;
}

ProgressThread::~ProgressThread() {
    {
        const std::lock_guard guard(mutex_);
        has_left_ = true;
    }
    leaving_.notify_all();
}

// The loop pauses during a call, since an event that this thread handled would not wake the thread
// that runs the call.
void ProgressThread::run() {
    std::unique_lock lock(mutex_);
    while (!leaving_.wait_for(lock, between_looks, [&] { return has_left_; })) {
        if (is_in_call_.load(std::memory_order_relaxed)) continue;
        const Done progressed = exception_boundary([&]() -> Done {
            remote_.progress();
            return {};
        });
        after_look_(progressed);
    }
}

} // namespace qccl
