// A background thread that answers ranks of other hosts while this rank is in no call. Ranks that
// wait ask every rank where it is, and a rank that only computes for a while would not answer. Used
// by SharedTransport, on the thread that makes the calls.
#pragma once

#include "base/service_thread.hpp"
#include "transport/remote_endpoint.hpp"

#include <condition_variable>
#include <mutex>

namespace qccl {

class ProgressThread {
public:
    // `remote` and `shared_error` outlive the object. An exception in the thread fails the
    // communicator.
    static Result<std::unique_ptr<ProgressThread>> start(RemoteEndpoint &remote,
                                                         SharedError &shared_error);
    ~ProgressThread();

    // Between the two the rank itself progresses the network. Each costs the rank one store.
    void call_begins() { is_in_call_.store(true, std::memory_order_relaxed); }
    void call_ends() { is_in_call_.store(false, std::memory_order_relaxed); }

private:
    ProgressThread(RemoteEndpoint &remote, SharedError &shared_error)
        : remote_(remote), shared_error_(shared_error) {}
    void run();

    RemoteEndpoint &remote_;
    SharedError &shared_error_;
    std::atomic<bool> is_in_call_{false};
    std::mutex mutex_;
    std::condition_variable leaving_;
    bool has_left_ = false;
    ServiceThread thread_; // last: the thread uses the members above
};

} // namespace qccl
