// There are as many threads as streams have had work at once, so that a stream that waits does not
// keep another from being served. Captures record the work of capturing streams and make graphs of
// it. Decides which calls the runtime admits, how streams wait for default streams, how captures
// end and how calls wait for GPUs; puts kernels into streams and checks the memory that QCCL's
// kernels access.
#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include "kernels/gpu/emulated.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace qccl::emulated {

// ---- Workers

static bool can_begin(const StreamWork &work) {
    return std::ranges::all_of(work.after,
                               [](const Dependency &before) { return before.point->is_done; });
}

// Returns the failure that the work takes over from a stream that it waits for.
static Outcome inherited(const StreamWork &work) {
    for (const Dependency &before : work.after)
        if (before.shares_failure && !before.point->outcome.is_ok()) return before.point->outcome;
    return {};
}

Outcome Workers::prepare(size_t streams) {
    while (threads_.size() < served_ + streams) {
        auto thread = ServiceThread::start("emulated-gpu", [this] { work_for_ever(); });
        if (!thread) return thread.error();
        threads_.push_back(std::move(*thread));
    }
    return {};
}

Outcome Workers::put(const StreamPtr &stream, StreamWork work) {
    work.point = std::make_shared<StreamPoint>();
    if (!stream->is_served) {
        if (!work.run && can_begin(work)) {
            stream->last = work.point;
            come_by(*stream, work, inherited(work));
            return {};
        }
        if (Outcome outcome = prepare(1); !outcome.is_ok()) return outcome;
        stream->is_served = true;
        served_++;
        make_ready(stream);
    }
    stream->last = work.point;
    stream->work.push_back(std::move(work));
    return {};
}

Outcome Workers::wait(Lock &lock, const PointPtr &point) {
    point->done.wait(lock, [&] { return point->is_done; });
    return point->outcome;
}

void Workers::make_ready(StreamPtr stream) {
    ready_.push_back(std::move(stream));
    if (idle_.empty()) return; // a thread that has done its work looks here
    IdleThread &next = *idle_.back();
    idle_.pop_back();
    next.is_called = true;
    next.called.notify_one();
}

void Workers::work_for_ever() {
    Lock lock(mutex_);
    IdleThread own;
    while (true) {
        while (ready_.empty()) {
            idle_.push_back(&own);
            own.called.wait(lock, [&] { return own.is_called; });
            own.is_called = false;
        }
        const StreamPtr stream = std::move(ready_.front());
        ready_.pop_front();
        serve(stream, lock);
    }
}

void Workers::serve(const StreamPtr &stream, Lock &lock) {
    while (!stream->work.empty()) {
        for (const Dependency &before : stream->work.front().after)
            if (!before.point->is_done) {
                before.point->waiting.push_back(stream);
                return;
            }
        StreamWork work = std::move(stream->work.front());
        stream->work.pop_front();
        Outcome outcome = inherited(work);
        if (stream->failure.is_ok() && outcome.is_ok() && work.run)
            outcome = run(std::move(work.run), lock);
        come_by(*stream, work, outcome);
    }
    stream->is_served = false;
    served_--;
}

Outcome Workers::run(std::function<Outcome()> body, Lock &lock) {
    if (fails_in_ > 0 && --fails_in_ == 0) return {failure_, "this work was to fail"};
    lock.unlock();
    Outcome outcome = body();
    body = nullptr; // destroys what the work holds before others learn that the work is done
    lock.lock();
    return outcome;
}

void Workers::come_by(EmulatedStream &stream, const StreamWork &work, const Outcome &outcome) {
    if (stream.failure.is_ok()) stream.failure = outcome;
    StreamPoint &point = *work.point;
    point.is_done = true;
    point.outcome = stream.failure;
    point.done.notify_all();
    for (StreamPtr &waiting : point.waiting) make_ready(std::move(waiting));
    point.waiting.clear();
}

// ---- Captures

void Capture::join(const EmulatedStream *stream, const Tips &tips) {
    CapturedLane &lane =
        lanes_.try_emplace(stream, CapturedLane{.number = lanes_.size(), .tips = {}}).first->second;
    for (const size_t tip : tips)
        if (std::ranges::find(lane.tips, tip) == lane.tips.end()) lane.tips.push_back(tip);
}

void Capture::add(const EmulatedStream *stream, std::function<Outcome()> run) {
    CapturedLane &lane = lanes_.at(stream);
    nodes_.push_back({.run = std::move(run), .after = lane.tips, .lane = lane.number});
    lane.tips = {nodes_.size() - 1};
}

bool Capture::forbids(qcclEmulatedCaptureMode_t own) const {
    if (own == qcclEmulatedCaptureModeRelaxed || mode_ == qcclEmulatedCaptureModeRelaxed)
        return false;
    if (thread_ == std::this_thread::get_id()) return true;
    return own == qcclEmulatedCaptureModeGlobal && mode_ == qcclEmulatedCaptureModeGlobal;
}

Outcome Capture::check_end(const EmulatedStream *stream) const {
    if (stream != origin_) return qcclEmulatedErrorStreamCaptureUnmatched;
    if (mode_ != qcclEmulatedCaptureModeRelaxed && thread_ != std::this_thread::get_id())
        return qcclEmulatedErrorStreamCaptureWrongThread;
    return {};
}

Outcome Capture::finish(CapturedGraph &graph) {
    if (is_spoilt_) return qcclEmulatedErrorStreamCaptureInvalidated;
    std::vector<bool> leads_back(nodes_.size(), false);
    for (const size_t tip : lanes_.at(origin_).tips) leads_back[tip] = true;
    for (size_t i = nodes_.size(); i-- > 0;) {
        if (!leads_back[i]) return qcclEmulatedErrorStreamCaptureUnjoined;
        for (const size_t before : nodes_[i].after) leads_back[before] = true;
    }
    graph.nodes = nodes_;
    graph.objects = take_objects();
    graph.lanes = lanes_.size();
    return {};
}

// ---- State and calls

static std::atomic<Runtime *> &the_runtime() {
    static std::atomic<Runtime *> runtime{new Runtime};
    return runtime;
}

Runtime &Runtime::current() { return *the_runtime(); }
void Runtime::begin_again() {
    the_runtime() = new Runtime;
    self().device = 0;
    self().mode = qcclEmulatedCaptureModeGlobal;
}

Runtime::Runtime() {
    for (int device = 0; device < device_count; device++) {
        const auto stream = std::make_shared<EmulatedStream>();
        stream->device = device;
        stream->is_default = true;
        defaults_[static_cast<size_t>(device)] = stream;
        all_.insert(stream);
    }
}

Outcome Runtime::admit(const Manner &manner) {
    if (self().is_in_host_function) return qcclEmulatedErrorNotPermitted;
    if (manner.counts) {
        calls++;
        if (fails_in > 0 && --fails_in == 0) return {failure, "this call was to fail"};
    }
    if (!manner.may_wait) return {};
    bool is_forbidden = false;
    for (const auto &capture : captures) {
        if (!capture->forbids(self().mode)) continue;
        capture->spoil();
        is_forbidden = true;
    }
    return is_forbidden ? qcclEmulatedErrorStreamCaptureUnsupported : qcclEmulatedSuccess;
}

StreamPtr Runtime::stream(qcclEmulatedStream_t handle) {
    if (!handle) return defaults_[static_cast<size_t>(self().device)];
    if (handle == qcclEmulatedStreamPerThread) return self().own_stream(*this);
    const auto found = streams.find(handle);
    return found == streams.end() ? nullptr : found->second;
}

StreamPtr Runtime::create_stream(bool is_blocking) {
    auto stream = std::make_shared<EmulatedStream>();
    stream->device = self().device;
    stream->is_blocking = is_blocking;
    all_.insert(stream);
    return stream;
}

void Runtime::destroy_stream(const StreamPtr &stream) {
    streams.erase(stream.get());
    if (const auto capture = stream->capture) {
        capture->spoil();
        end_capture(capture);
        capture->take_objects();
    }
    if (!stream->last || stream->last->is_done) all_.erase(stream);
}

std::vector<Dependency> Runtime::default_order(const EmulatedStream &stream) {
    std::vector<Dependency> after;
    const auto add = [&](const EmulatedStream &other) {
        if (other.device == stream.device && other.last && !other.last->is_done)
            after.push_back({.point = other.last});
    };
    if (stream.is_blocking) add(*defaults_[static_cast<size_t>(stream.device)]);
    if (stream.is_default)
        for (const StreamPtr &other : all_)
            if (other->is_blocking) add(*other);
    return after;
}

Outcome Runtime::put(const StreamPtr &stream, std::function<Outcome()> run,
                     std::vector<Dependency> after) {
    if (stream->capture) {
        if (stream->capture->is_spoilt()) return qcclEmulatedErrorStreamCaptureInvalidated;
        stream->capture->add(stream.get(), std::move(run));
        return {};
    }
    if (const StreamPtr other = captor(*stream))
        return refuse_capture(other, qcclEmulatedErrorStreamCaptureImplicit);
    if (!stream->failure.is_ok()) return stream->failure;
    for (Dependency &before : default_order(*stream)) after.push_back(std::move(before));
    return workers.put(stream,
                       {.run = std::move(run), .after = std::move(after), .point = nullptr});
}

Outcome Runtime::refuse_capture(const StreamPtr &stream, int32_t result) {
    stream->capture->spoil();
    return result;
}

StreamPtr Runtime::captor(const EmulatedStream &stream) const {
    if (stream.is_default)
        for (const StreamPtr &other : all_)
            if (other->is_blocking && other->device == stream.device && other->capture)
                return other;
    return nullptr;
}

void Runtime::end_capture(const std::shared_ptr<Capture> &capture) {
    captures.erase(capture);
    for (const StreamPtr &stream : all_)
        if (stream->capture == capture) stream->capture = nullptr;
}

std::vector<PointPtr> Runtime::everything(int device) {
    std::vector<PointPtr> points;
    std::erase_if(all_, [&](const StreamPtr &stream) {
        const bool is_busy = stream->last && !stream->last->is_done;
        if (is_busy && stream->device == device) points.push_back(stream->last);
        return !is_busy && stream.use_count() == 1;
    });
    return points;
}

Outcome Runtime::wait_for_everything(Lock &lock, int device) {
    Outcome outcome;
    for (const PointPtr &point : everything(device))
        if (Outcome other = Workers::wait(lock, point); outcome.is_ok()) outcome = std::move(other);
    return waited(device, std::move(outcome));
}

Outcome Runtime::waited(int device, Outcome outcome) {
    if (!outcome.is_ok()) return outcome;
    return pieces.check_guards(device);
}

bool Runtime::reaches(int device, const void *at, size_t bytes) const {
    const MemoryPiece *const piece = pieces.find(at);
    if (!piece || !piece->holds(at, bytes)) return false;
    if (!piece->is_of_a_gpu() || piece->device == device) return true;
    return piece->kind == MemoryPiece::Kind::opened ||
           peers[static_cast<size_t>(device)][static_cast<size_t>(piece->device)];
}

bool Runtime::is_whole(const void *at, size_t bytes) const {
    const MemoryPiece *const piece = pieces.find(at);
    return !piece || !piece->is_of_a_gpu() || piece->holds(at, bytes);
}

Self &self() {
    static thread_local Self self;
    return self;
}

// Runtime::everything later drops streams of ended threads that have no work left.
Self::~Self() {
    if (!runtime_ || runtime_ != &Runtime::current() || !runtime_->is_of_this_process()) return;
    const Lock lock(runtime_->mutex);
    own_ = {};
}

StreamPtr Self::own_stream(Runtime &runtime) {
    if (runtime_ != &runtime) own_ = {};
    runtime_ = &runtime;
    StreamPtr &stream = own_[static_cast<size_t>(device)];
    if (!stream) stream = runtime.create_stream(true);
    return stream;
}

qcclEmulatedResult_t told(const Outcome &outcome) {
    if (outcome.is_ok() || outcome.result == qcclEmulatedErrorNotReady) return outcome.result;
    self().sentence =
        outcome.sentence.empty() ? qcclEmulatedGetErrorString(outcome.result) : outcome.sentence;
    return outcome.result;
}

// ---- Kernel launches

namespace {

// Alternates the order of a launch's threads, because no result may depend on the order.
Order next_order() {
    static thread_local bool is_reverse = false;
    is_reverse = !is_reverse;
    return is_reverse ? Order::reverse : Order::forward;
}

Outcome outcome_of(const Done &done) {
    return done ? Outcome() : Outcome(qcclEmulatedErrorLaunchFailure, done.error().text);
}

// Returns the bytes that an operand must have at least. Coded values lie where their codec places
// them, so only their first byte is checked.
size_t least_bytes(const Operand &operand, uint64_t count) {
    return operand.is_plain() ? operand.numbers_of(count) * type_bytes(operand.type) : 1;
}

Outcome check_addresses(Runtime &runtime, int device, const Batch &batch) {
    const Lock lock(runtime.mutex);
    for (uint32_t i = 0; i < batch.tensors; i++) {
        const Tensor &tensor = batch.tensor[i];
        if (tensor.count == 0) continue;
        for (uint32_t j = 0; j <= tensor.sources; j++) {
            const Operand &operand = batch.operand[tensor.first_source - 1 + j];
            if (!runtime.reaches(device, operand.at, least_bytes(operand, tensor.count)))
                return {qcclEmulatedErrorIllegalAddress, "a kernel touches memory that GPU " +
                                                             std::to_string(device) +
                                                             " does not reach"};
        }
    }
    if (batch.call && !runtime.reaches(device, batch.call, sizeof *batch.call))
        return qcclEmulatedErrorIllegalAddress;
    return {};
}

Outcome check_launch(const StreamPtr &stream, unsigned blocks) {
    if (!stream) return qcclEmulatedErrorInvalidHandle;
    if (stream->device != self().device)
        return {qcclEmulatedErrorInvalidHandle, "a kernel on one GPU, a stream of another"};
    if (blocks == 0) return qcclEmulatedErrorInvalidValue;
    return {};
}

} // namespace

qcclEmulatedResult_t launch(qcclEmulatedStream_t handle, KernelId kernel, unsigned blocks,
                            const Batch &batch) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (Outcome refused = check_launch(stream, blocks); !refused.is_ok()) return refused;
        return runtime.put(stream,
                           [&runtime, device = stream->device, kernel, blocks,
                            copy = std::make_shared<Batch>(batch)]() -> Outcome {
                               Outcome checked = check_addresses(runtime, device, *copy);
                               if (!checked.is_ok()) return checked;
                               return outcome_of(
                                   launch_emulated(static_cast<unsigned>(lanes_of(device)),
                                                   next_order(), kernel, blocks, *copy));
                           });
    });
}

Outcome put_kernel(Runtime &runtime, const StreamPtr &stream, qcclEmulatedKernel_t kernel,
                   unsigned blocks, unsigned threads, const void *argument, size_t bytes) {
    if (Outcome refused = check_launch(stream, blocks); !refused.is_ok()) return refused;
    if (!kernel || threads == 0 || (bytes > 0 && !argument)) return qcclEmulatedErrorInvalidValue;
    const auto lanes = static_cast<unsigned>(lanes_of(stream->device));
    if (threads % lanes != 0)
        return {qcclEmulatedErrorInvalidValue, "a block has no whole number of warps"};
    auto copy = std::make_shared<std::vector<std::byte>>(bytes);
    if (bytes > 0) std::memcpy(copy->data(), argument, bytes);
    return runtime.put(stream, [=]() -> Outcome {
        self().is_in_kernel = true;
        const Done done =
            emulated::launch({.blocks = blocks, .threads = threads, .lanes = lanes}, next_order(),
                             [&] { kernel(copy->data(), block(), thread()); });
        self().is_in_kernel = false;
        return outcome_of(done);
    });
}

} // namespace qccl::emulated

void qcclEmulatedSyncThreads(void) {
    if (qccl::emulated::self().is_in_kernel) qccl::emulated::barrier();
}
