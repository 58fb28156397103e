// A host stream: a queue of work and a thread that does it in order. Knows nothing of what the work
// is; waiting for other streams is the work's own business.
#pragma once

#include "api/handle_table.hpp"
#include "base/quiet_thread.hpp"
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
    // Set when the caller has been given its error; may be null.
    std::shared_ptr<std::atomic<bool>> told = nullptr;
};

class Stream {
public:
    static Result<std::unique_ptr<Stream>> create(std::optional<uint64_t> cpu);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void enqueue(WorkItem work);
    // Both hand out the first error since the last that was handed out, once.
    Done synchronize();
    Done query();

    bool is_this_thread() const { return thread_.id() == std::this_thread::get_id(); }

private:
    Stream() = default;
    void run();
    Done take_error();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<WorkItem> queue_; // the front one is being done
    std::optional<Error> error_;
    std::shared_ptr<std::atomic<bool>> told_; // of the work that has the error
    bool ends_ = false;
    QuietThread thread_; // last: it uses all of the above
};

using StreamHandles = HandleTable<HandleRecord<Stream>>;
using StreamRef = StreamHandles::Reference;
extern constinit StreamHandles stream_handles;

// What a handle names: no stream (the call returns when done) or one of the host.
Result<StreamRef> take_stream(qcclStream_t handle);

} // namespace qccl
