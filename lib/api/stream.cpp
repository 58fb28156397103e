// Implements host streams and their C functions.
#include "api/stream.hpp"

#include "api/boundary.hpp"
#include "base/settings.hpp"

#include <unistd.h>

namespace qccl {

Result<std::unique_ptr<Stream>> Stream::create(std::optional<uint64_t> cpu) {
    std::unique_ptr<Stream> stream(new Stream());
    QCCL_TRY(stream->thread_,
             ServiceThread::start(stream_thread_name, [s = stream.get()] { s->run(); }));
    if (cpu) QCCL_TRY(stream->thread_.pin(*cpu));
    return stream;
}

Stream::~Stream() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Stream::enqueue(WorkItem work) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    changed_.notify_all();
}

void Stream::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
        if (queue_.empty()) return;
        lock.unlock();
        const Done done = exception_boundary(queue_.front().run);
        lock.lock();
        if (!done && !error_) {
            error_ = done.error();
            told_ = std::move(queue_.front().told);
        }
        queue_.pop_front();
        changed_.notify_all();
    }
}

Done Stream::take_error() {
    if (!error_) return {};
    const Error error = *error_;
    error_.reset();
    if (told_) told_->store(true, std::memory_order_relaxed);
    return error;
}

Done Stream::synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
    return take_error();
}

Done Stream::query() {
    const std::lock_guard lock(mutex_);
    QCCL_TRY(take_error());
    if (queue_.empty()) return {};
    return Error::make(Code::in_progress, "%zu calls are not done yet", queue_.size());
}

constinit StreamHandles stream_handles{{.tag = 0x51C2,
                                        .argument = "stream",
                                        .unknown = "no qcclStreamCreate made",
                                        .ended = "destroyed",
                                        .is_inherited = false}};

Result<StreamRef> take_stream(qcclStream_t handle) {
    if (!handle || handle == QCCL_STREAM_SYNC) return StreamRef();
    return stream_handles.refer(handle);
}

// For the C functions of streams, for which NULL and QCCL_STREAM_SYNC have no meaning.
static Result<StreamRef> take_real_stream(qcclStream_t handle) {
    QCCL_TRY(StreamRef stream, take_stream(handle));
    if (!stream)
        return Error::make(Code::invalid_argument, "stream is %s, not one from qcclStreamCreate",
                           handle ? "QCCL_STREAM_SYNC" : "NULL");
    return stream;
}

static Result<StreamRef> take_stream_to_wait_for(qcclStream_t handle) {
    QCCL_TRY(StreamRef stream, take_real_stream(handle));
    if (stream->is_this_thread())
        return Error::make(Code::invalid_usage,
                           "a stream cannot wait for itself (this is its own thread, in an idle "
                           "or log function)");
    return stream;
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclStreamCreate(qcclStream_t *stream_out) {
    return guarded([=]() -> Done {
        if (!stream_out) return Error::make(Code::invalid_argument, "stream_out is NULL");
        QCCL_TRY(const Settings settings, read_settings(environ));
        QCCL_TRY(auto stream, Stream::create(settings.progress_cpu));
        QCCL_TRY(*stream_out, stream_handles.add(std::move(stream)));
        return {};
    });
}
QCCL_TWIN(qcclStreamCreate);

qcclResult_t qcclStreamDestroy(qcclStream_t stream) {
    return guarded([=]() -> Done {
        if (!stream) return {};
        QCCL_TRY(StreamRef taken, take_stream_to_wait_for(stream));
        QCCL_TRY(taken.end());
        taken.await_others();
        return {};
    });
}
QCCL_TWIN(qcclStreamDestroy);

qcclResult_t qcclStreamSynchronize(qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef taken, take_stream_to_wait_for(stream));
        return taken->synchronize();
    });
}
QCCL_TWIN(qcclStreamSynchronize);

qcclResult_t qcclStreamQuery(qcclStream_t stream) {
    return guarded([=]() -> Done {
        QCCL_TRY(const StreamRef taken, take_real_stream(stream));
        return taken->query();
    });
}
QCCL_TWIN(qcclStreamQuery);
