// A background thread that answers ranks of other hosts while this rank is in no call. Ranks that
// wait ask every rank where it is, and a rank that only computes for a while would not answer. Used
// by SharedTransport, on the thread that makes the calls.
#pragma once

#include "base/service_thread.hpp"
#include "transport/remote_endpoint.hpp"

#include <condition_variable>
#include <functional>
#include <mutex>

namespace qccl {

class ProgressThread {
public:
    // Called by the thread after each look at the network. `progressed` is an error if an exception
    // ended the look.
    using AfterLook = std::function<void(const Done &progressed)>;
    // `remote`, and what `after_look` refers to, outlive the object.
    static Result<std::unique_ptr<ProgressThread>> start(RemoteEndpoint &remote,
                                                         AfterLook after_look);
    ~ProgressThread();

    // Between the two the rank itself progresses the network. Each costs the rank one store.
    void call_begins() { is_in_call_.store(true, std::memory_order_relaxed); }
    void call_ends() { is_in_call_.store(false, std::memory_order_relaxed); }

private:
    ProgressThread(RemoteEndpoint &remote, AfterLook after_look)
        : remote_(remote), after_look_(std::move(after_look)) {}
    void run();

    RemoteEndpoint &remote_;
    const AfterLook after_look_;
    std::atomic<bool> is_in_call_{false};
    std::mutex mutex_;
    std::condition_variable leaving_;
    bool has_left_ = false;
    ServiceThread thread_; // last: the thread uses the members above
};

} // namespace qccl
