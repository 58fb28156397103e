// What a process group has that has to end: communicators, threads, links. It is apart from
// QcclBackend because it may end later than the backend, on another thread, or at the end of the
// process.
//
// `close` blocks; any thread but those of the callbacks may call it, also several times. Any thread
// may call `abort`.
#pragma once

#include "core/call_queue.hpp"
#include "core/callback_runner.hpp"
#include "core/communicator.hpp"
#include "messages/messenger.hpp"
#include "store_adapter.hpp"
#include "torch_backend.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include <unistd.h>

namespace qccl_torch {

// Members end in reverse order: the queue and the links before the communicator.
struct QcclBackend::Resources {
    const pid_t process = getpid();
    std::shared_ptr<StoreAdapter> store;
    std::string store_prefix;
    std::atomic<int64_t> monitored_barriers{0};
    std::atomic<bool> is_closed{false};
    std::atomic<qcclResult_t> failure{qcclSuccess}; // the last one of the communicator
    std::mutex closing;
    std::unique_ptr<Communicator> communicator; // of the host; another device would have its own
    std::shared_ptr<Messenger> messenger;
    // Works have it, too, because they may be complete when the group is gone.
    const std::shared_ptr<CallbackRunner> callbacks = std::make_shared<CallbackRunner>();
    CallQueue queue;

    // Makes calls, as one QCCL group if they are several, and completes their Work objects. The
    // queue's tasks call it.
    void run(const std::vector<CoalescedCall> &calls);
    void make_calls(const std::vector<CoalescedCall> &calls) const;
    // Ends calls that are not done after `patience` with an error on all ranks.
    void close(Milliseconds patience);
    // Ends calls with an error on all ranks, and a running `close`.
    void abort();
};

} // namespace qccl_torch
