// A host stream: a queue of work and a thread that does it in order. Knows nothing of what the work
// is; waiting for other streams is the work's own business.
#pragma once

#include "api/fork_mark.hpp"
#include "api/handle_mark.hpp"
#include "base/quiet_thread.hpp"
#include "base/result.hpp"

#include <qccl/qccl.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace qccl {

using WorkItem = std::function<Done()>;

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

    bool is_child() const { return owner_.is_child(); }
    bool is_this_thread() const { return thread_.id() == std::this_thread::get_id(); }
    bool is_intact() const { return mark_.is_intact(); }

private:
    explicit Stream(ForkMark owner) : owner_(std::move(owner)) {}
    void run();
    Done take_error();

    HandleMark<0x4D41455254534351> mark_; // "QCSTREAM"
    ForkMark owner_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<WorkItem> queue_; // the front one is being done
    std::optional<Error> error_;
    bool ends_ = false;
    QuietThread thread_; // last: it uses all of the above
};

// What a handle names: nobody (the call returns when done) or a stream.
Result<Stream *> take_stream(qcclStream_t handle);

} // namespace qccl
