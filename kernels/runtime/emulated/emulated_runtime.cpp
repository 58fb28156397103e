// Decides which calls the runtime admits, how streams wait for default streams, how captures end
// and how calls wait for GPUs; puts kernels into streams and checks the memory that QCCL's kernels
// access.
#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include "kernels/runtime/emulated/emulated_kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace qccl::emulated {

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
        const auto stream = std::make_shared<Stream>();
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
    const auto stream = std::make_shared<Stream>();
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

std::vector<Dependency> Runtime::default_order(const Stream &stream) {
    std::vector<Dependency> after;
    const auto add = [&](const Stream &other) {
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

StreamPtr Runtime::captor(const Stream &stream) const {
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
    return outcome.is_ok() ? pieces.check_guards(device) : outcome;
}

bool Runtime::reaches(int device, const void *at, size_t bytes) const {
    const Piece *const piece = pieces.find(at);
    if (!piece || !piece->holds(at, bytes)) return false;
    if (!piece->is_of_a_gpu() || piece->device == device) return true;
    return piece->kind == Piece::Kind::opened ||
           peers[static_cast<size_t>(device)][static_cast<size_t>(piece->device)];
}

bool Runtime::is_whole(const void *at, size_t bytes) const {
    const Piece *const piece = pieces.find(at);
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
    return operand.codec == CodecId::none ? count * type_bytes(operand.type) : 1;
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
