// A host stream: a queue of work, and a thread that runs it in order. Work that depends on other
// streams waits for them itself. Any thread may use a stream; synchronize and the destructor wait
// until the queue is empty.
#pragma once

#include "api/handle_table.hpp"
#include "base/service_thread.hpp"
#include "base/result.hpp"

#include <qccl/qccl.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace qccl {

struct WorkItem {
    std::function<Done()> run;
    // Set to true when the caller has received the work's error; may be null.
    std::shared_ptr<std::atomic<bool>> told = nullptr;
};

class Stream {
public:
    // `cpu`: the only CPU that the thread runs on; nothing: any.
    static Result<std::unique_ptr<Stream>> create(std::optional<uint64_t> cpu);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void enqueue(WorkItem work);
    // Each returns the first error since the last one that was returned, once. query returns
    // in_progress while work is left.
    Done synchronize();
    Done query();

    bool is_this_thread() const { return thread_.id() == std::this_thread::get_id(); }

private:
    Stream() = default;
    void run();
    Done take_error();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<WorkItem> queue_; // the front item is running
    std::optional<Error> error_;
    std::shared_ptr<std::atomic<bool>> told_; // of the work that error_ came from
    bool ends_ = false;
    ServiceThread thread_; // last: it uses all of the above
};

using StreamHandles = HandleTable<HandleRecord<Stream>>;
using StreamRef = StreamHandles::Reference;
extern constinit StreamHandles stream_handles;

// Returns no stream for NULL and QCCL_STREAM_SYNC (the call returns when done), else a stream of
// the host.
Result<StreamRef> take_stream(qcclStream_t handle);

} // namespace qccl
