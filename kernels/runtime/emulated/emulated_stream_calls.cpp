// The emulated runtime's C API for streams, events, the work that programs put into streams,
// captures and graphs. Any thread may call. The calls that end in Synchronize wait for a GPU; a
// call that creates a stream waits if the GPU has no queue left for it.

#include "kernels/runtime/emulated/emulated_runtime.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

#include <sys/prctl.h>

namespace qccl::emulated {

// ---- Streams and events

namespace {

// Waits for memory that the host writes without a notification. The sleeps become longer, so that
// many streams that wait long leave the processors to other threads.
void sleep_until_reached(const uint32_t *at, uint32_t value) {
    using namespace std::chrono_literals;
    prctl(PR_SET_TIMERSLACK, 1UL);
    const std::atomic_ref word(*const_cast<uint32_t *>(at));
    for (auto nap = 10us; static_cast<int32_t>(word.load() - value) < 0;
         nap = std::min<std::chrono::microseconds>(nap + nap / 8 + 1us, 1ms))
        std::this_thread::sleep_for(nap);
}

constexpr int least_priority = 0, greatest_priority = -5;

// A driver gives a GPU's streams a limited number of queues. A stream that would share a queue is
// created when the GPU has done all that it has been given.
constexpr long queues = 32;

qcclEmulatedResult_t create_stream(qcclEmulatedStream_t *stream, unsigned flags, int priority) {
    return called(asks, [&](Runtime &runtime, Lock &lock) -> Outcome {
        if (!stream || flags > qcclEmulatedStreamNonBlocking) return qcclEmulatedErrorInvalidValue;
        const int device = self().device;
        const auto is_here = [&](const auto &known) { return known.second->device == device; };
        if (std::ranges::count_if(runtime.streams, is_here) >= queues)
            for (const PointPtr &point : runtime.everything(device)) Workers::wait(lock, point);
        const StreamPtr made = runtime.create_stream(flags == qcclEmulatedStreamDefault);
        made->priority = std::clamp(priority, greatest_priority, least_priority);
        runtime.streams.emplace(made.get(), made);
        *stream = reinterpret_cast<qcclEmulatedStream_t>(made.get());
        return {};
    });
}

EmulatedEvent *event_of(Runtime &runtime, qcclEmulatedEvent_t handle) {
    const auto found = runtime.events.find(handle);
    return found == runtime.events.end() ? nullptr : found->second.get();
}

// Returns an error if the caller may not wait for the stream. Makes sure that stream->last is set.
Outcome check_wait(Runtime &runtime, const StreamPtr &stream) {
    if (!stream) return qcclEmulatedErrorInvalidHandle;
    if (stream->capture)
        return runtime.refuse_capture(stream, qcclEmulatedErrorStreamCaptureUnsupported);
    // The default stream ends when other streams end, too, so its last point must wait for them.
    return stream->is_default || !stream->last ? runtime.put(stream, nullptr) : Outcome();
}

Outcome join_capture(Runtime &runtime, const StreamPtr &stream, const EmulatedEvent &event) {
    if (!runtime.captures.contains(event.capture)) return qcclEmulatedErrorCapturedEvent;
    if (event.capture->is_spoilt()) return qcclEmulatedErrorStreamCaptureInvalidated;
    if (stream->capture && stream->capture != event.capture)
        return runtime.refuse_capture(stream, qcclEmulatedErrorStreamCaptureIsolation);
    if (stream->is_default) {
        event.capture->spoil();
        return qcclEmulatedErrorStreamCaptureImplicit;
    }
    stream->capture = event.capture;
    event.capture->join(stream.get(), event.tips);
    return {};
}

Outcome record(Runtime &runtime, EmulatedEvent &event, const StreamPtr &stream) {
    if (event.device != stream->device)
        return {qcclEmulatedErrorInvalidHandle, "an event of one GPU, a stream of another"};
    if (stream->capture) {
        if (stream->capture->is_spoilt()) return qcclEmulatedErrorStreamCaptureInvalidated;
        event.capture = stream->capture;
        event.tips = stream->capture->tips(stream.get());
        event.point = nullptr;
        return {};
    }
    if (Outcome put = runtime.put(stream, nullptr); !put.is_ok()) return put;
    event.point = stream->last;
    event.capture = nullptr;
    return {};
}

// Finds the event and the stream, and calls `body`.
template <class Body>
qcclEmulatedResult_t called_with(const Manner &manner, qcclEmulatedEvent_t event,
                                 qcclEmulatedStream_t stream, Body &&body) {
    return called(manner, [&](Runtime &runtime, Lock &) -> Outcome {
        EmulatedEvent *const known = event_of(runtime, event);
        const StreamPtr own = runtime.stream(stream);
        if (!known || !own) return qcclEmulatedErrorInvalidHandle;
        return body(runtime, *known, own);
    });
}

// Puts work into a stream that accesses a word, which the stream's GPU must reach.
template <class Action>
qcclEmulatedResult_t put_on_word(qcclEmulatedStream_t handle, const uint32_t *at, Action work) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!runtime.reaches(stream->device, at, sizeof *at)) return qcclEmulatedErrorInvalidValue;
        return runtime.put(stream, [work]() -> Outcome {
            work();
            return {};
        });
    });
}

} // namespace

// ---- Graphs

namespace {

// Starts a graph. The first lane runs in the launch's stream, every other lane in a stream of its
// own, so that nodes that were independent in the capture stay independent.
Outcome launch_graph(Runtime &runtime, GraphExec &exec, const StreamPtr &stream) {
    if (Outcome start = runtime.put(stream, nullptr,
                                    exec.last ? std::vector<Dependency>{{exec.last}}
                                              : std::vector<Dependency>{});
        !start.is_ok())
        return start;
    if (Outcome few = runtime.workers.prepare(exec.graph.lanes); !few.is_ok()) return few;
    const Dependency start{.point = stream->last, .shares_failure = true};
    std::vector<StreamPtr> lanes{stream};
    while (lanes.size() < exec.graph.lanes) {
        lanes.push_back(std::make_shared<EmulatedStream>());
        lanes.back()->device = stream->device;
    }
    std::vector<PointPtr> points;
    for (const CapturedNode &node : exec.graph.nodes) {
        std::vector<Dependency> after{start};
        for (const size_t before : node.after)
            after.push_back({.point = points[before], .shares_failure = true});
        const StreamPtr &lane = lanes[node.lane];
        Outcome put =
            runtime.workers.put(lane, {.run = node.run, .after = after, .point = nullptr});
        if (!put.is_ok()) return put;
        points.push_back(lane->last);
    }
    std::vector<Dependency> all;
    for (const PointPtr &point : points) all.push_back({.point = point, .shares_failure = true});
    std::function<Outcome()> keep;
    if (!exec.graph.objects.empty())
        keep = [objects = exec.graph.objects]() -> Outcome { return {}; };
    Outcome end = runtime.put(stream, std::move(keep), std::move(all));
    exec.last = stream->last;
    return end;
}

} // namespace

} // namespace qccl::emulated

using namespace qccl::emulated;

qcclEmulatedResult_t qcclEmulatedStreamCreate(qcclEmulatedStream_t *stream) {
    return create_stream(stream, qcclEmulatedStreamDefault, least_priority);
}
qcclEmulatedResult_t qcclEmulatedStreamCreateNonBlocking(qcclEmulatedStream_t *stream) {
    return create_stream(stream, qcclEmulatedStreamNonBlocking, least_priority);
}
qcclEmulatedResult_t qcclEmulatedStreamCreateWithPriority(qcclEmulatedStream_t *stream,
                                                          unsigned flags, int priority) {
    return create_stream(stream, flags, priority);
}

qcclEmulatedResult_t qcclEmulatedStreamGetPriority(qcclEmulatedStream_t handle, int *priority) {
    return called(tells, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!priority) return qcclEmulatedErrorInvalidValue;
        *priority = stream->priority;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return called(asks, [&](Runtime &, Lock &) -> Outcome {
        if (!least || !greatest) return qcclEmulatedErrorInvalidValue;
        *least = least_priority;
        *greatest = greatest_priority;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedStreamDestroy(qcclEmulatedStream_t handle) {
    return called(gives_back, [&](Runtime &runtime, Lock &) -> Outcome {
        const auto found = runtime.streams.find(handle);
        if (found == runtime.streams.end()) return qcclEmulatedErrorInvalidHandle;
        runtime.destroy_stream(StreamPtr(found->second));
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedStreamSynchronize(qcclEmulatedStream_t handle) {
    return called(waits, [&](Runtime &runtime, Lock &lock) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (Outcome refused = check_wait(runtime, stream); !refused.is_ok()) return refused;
        return runtime.waited(stream->device, Workers::wait(lock, PointPtr(stream->last)));
    });
}

qcclEmulatedResult_t qcclEmulatedStreamQuery(qcclEmulatedStream_t handle) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (Outcome refused = check_wait(runtime, stream); !refused.is_ok()) return refused;
        return stream->last->is_done ? stream->last->outcome : qcclEmulatedErrorNotReady;
    });
}

qcclEmulatedResult_t qcclEmulatedEventCreate(qcclEmulatedEvent_t *event) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        if (!event) return qcclEmulatedErrorInvalidValue;
        auto made = std::make_unique<EmulatedEvent>();
        made->device = self().device;
        *event = reinterpret_cast<qcclEmulatedEvent_t>(made.get());
        runtime.events.emplace(made.get(), std::move(made));
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedEventDestroy(qcclEmulatedEvent_t event) {
    return called(gives_back, [&](Runtime &runtime, Lock &) -> Outcome {
        return runtime.events.erase(event) == 1 ? qcclEmulatedSuccess
                                                : qcclEmulatedErrorInvalidHandle;
    });
}

qcclEmulatedResult_t qcclEmulatedEventRecord(qcclEmulatedEvent_t event,
                                             qcclEmulatedStream_t stream) {
    return called_with(asks, event, stream, record);
}

qcclEmulatedResult_t qcclEmulatedEventQuery(qcclEmulatedEvent_t handle) {
    return called(waits, [&](Runtime &runtime, Lock &) -> Outcome {
        const EmulatedEvent *const event = event_of(runtime, handle);
        if (!event) return qcclEmulatedErrorInvalidHandle;
        if (event->capture) return qcclEmulatedErrorCapturedEvent;
        if (!event->point) return {};
        return event->point->is_done ? event->point->outcome : qcclEmulatedErrorNotReady;
    });
}

qcclEmulatedResult_t qcclEmulatedEventSynchronize(qcclEmulatedEvent_t handle) {
    return called(waits, [&](Runtime &runtime, Lock &lock) -> Outcome {
        const EmulatedEvent *const event = event_of(runtime, handle);
        if (!event) return qcclEmulatedErrorInvalidHandle;
        if (event->capture) return qcclEmulatedErrorCapturedEvent;
        if (!event->point) return {};
        const int device = event->device;
        return runtime.waited(device, Workers::wait(lock, PointPtr(event->point)));
    });
}

qcclEmulatedResult_t qcclEmulatedStreamWaitEvent(qcclEmulatedStream_t stream,
                                                 qcclEmulatedEvent_t handle) {
    return called_with(
        asks, handle, stream,
        [](Runtime &runtime, const EmulatedEvent &event, const StreamPtr &own) -> Outcome {
            if (event.capture) return join_capture(runtime, own, event);
            if (!event.point) return {};
            if (own->capture)
                return runtime.refuse_capture(own, qcclEmulatedErrorStreamCaptureIsolation);
            return runtime.put(own, nullptr, {{.point = event.point, .shares_failure = true}});
        });
}

qcclEmulatedResult_t qcclEmulatedLaunchKernel(qcclEmulatedKernel_t kernel, unsigned blocks,
                                              unsigned threads, const void *argument, size_t bytes,
                                              qcclEmulatedStream_t stream) {
    return called(asks, [&](Runtime &runtime, Lock &) {
        return put_kernel(runtime, runtime.stream(stream), kernel, blocks, threads, argument,
                          bytes);
    });
}

qcclEmulatedResult_t qcclEmulatedLaunchHostFunc(qcclEmulatedStream_t handle,
                                                qcclEmulatedHostFn_t function, void *context) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!function) return qcclEmulatedErrorInvalidValue;
        return runtime.put(stream, [=]() -> Outcome {
            self().is_in_host_function = true;
            function(context);
            self().is_in_host_function = false;
            return {};
        });
    });
}

qcclEmulatedResult_t qcclEmulatedStreamWaitValue32(qcclEmulatedStream_t handle, const uint32_t *at,
                                                   uint32_t value) {
    return put_on_word(handle, at, [=] { sleep_until_reached(at, value); });
}

qcclEmulatedResult_t qcclEmulatedStreamWriteValue32(qcclEmulatedStream_t handle, uint32_t *at,
                                                    uint32_t value) {
    return put_on_word(handle, at, [=] { std::atomic_ref(*at).store(value); });
}

qcclEmulatedResult_t qcclEmulatedStreamBeginCapture(qcclEmulatedStream_t handle,
                                                    qcclEmulatedCaptureMode_t mode) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (stream->is_default) return qcclEmulatedErrorStreamCaptureUnsupported;
        if (stream->capture || mode < qcclEmulatedCaptureModeGlobal ||
            mode > qcclEmulatedCaptureModeRelaxed)
            return qcclEmulatedErrorInvalidValue;
        if (!stream->failure.is_ok()) return stream->failure;
        stream->capture = std::make_shared<Capture>(stream.get(), mode, ++runtime.captures_begun);
        runtime.captures.insert(stream->capture);
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedStreamEndCapture(qcclEmulatedStream_t handle,
                                                  qcclEmulatedGraph_t *graph) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!graph) return qcclEmulatedErrorInvalidValue;
        const std::shared_ptr<Capture> capture = stream->capture;
        if (!capture) return qcclEmulatedErrorStreamCaptureUnmatched;
        if (Outcome refused = capture->check_end(stream.get()); !refused.is_ok()) return refused;
        runtime.end_capture(capture);
        auto made = std::make_unique<CapturedGraph>();
        if (Outcome outcome = capture->finish(*made); !outcome.is_ok()) {
            capture->take_objects();
            return outcome;
        }
        *graph = reinterpret_cast<qcclEmulatedGraph_t>(made.get());
        runtime.graphs.emplace(made.get(), std::move(made));
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedStreamGetCapture(qcclEmulatedStream_t handle, uint64_t *capture) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!capture) return qcclEmulatedErrorInvalidValue;
        if (runtime.captor(*stream)) return qcclEmulatedErrorStreamCaptureImplicit;
        *capture = stream->capture ? stream->capture->number() : 0;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedCaptureUserObject(qcclEmulatedStream_t handle,
                                                   qcclEmulatedHostFn_t destroy, void *object) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        if (!stream) return qcclEmulatedErrorInvalidHandle;
        if (!destroy || !stream->capture) return qcclEmulatedErrorInvalidValue;
        if (stream->capture->is_spoilt()) return qcclEmulatedErrorStreamCaptureInvalidated;
        UserObject &kept = stream->capture->add_object();
        kept.destroy = destroy;
        kept.object = object;
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedThreadExchangeCaptureMode(qcclEmulatedCaptureMode_t *mode) {
    return called(tells, [&](Runtime &, Lock &) -> Outcome {
        if (!mode || *mode < qcclEmulatedCaptureModeGlobal ||
            *mode > qcclEmulatedCaptureModeRelaxed)
            return qcclEmulatedErrorInvalidValue;
        std::swap(*mode, self().mode);
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedGraphInstantiate(qcclEmulatedGraphExec_t *exec,
                                                  qcclEmulatedGraph_t graph) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const auto found = runtime.graphs.find(graph);
        if (!exec || found == runtime.graphs.end()) return qcclEmulatedErrorInvalidValue;
        auto made = std::make_unique<GraphExec>(GraphExec{.graph = *found->second, .last = {}});
        *exec = reinterpret_cast<qcclEmulatedGraphExec_t>(made.get());
        runtime.execs.emplace(made.get(), std::move(made));
        return {};
    });
}

qcclEmulatedResult_t qcclEmulatedGraphLaunch(qcclEmulatedGraphExec_t exec,
                                             qcclEmulatedStream_t handle) {
    return called(asks, [&](Runtime &runtime, Lock &) -> Outcome {
        const StreamPtr stream = runtime.stream(handle);
        const auto found = runtime.execs.find(exec);
        if (!stream || found == runtime.execs.end()) return qcclEmulatedErrorInvalidHandle;
        if (stream->capture)
            return runtime.refuse_capture(stream, qcclEmulatedErrorStreamCaptureUnsupported);
        return launch_graph(runtime, *found->second, stream);
    });
}

qcclEmulatedResult_t qcclEmulatedGraphDestroy(qcclEmulatedGraph_t graph) {
    return called(gives_back, [&](Runtime &runtime, Lock &) -> Outcome {
        return runtime.graphs.erase(graph) == 1 ? qcclEmulatedSuccess
                                                : qcclEmulatedErrorInvalidValue;
    });
}

qcclEmulatedResult_t qcclEmulatedGraphExecDestroy(qcclEmulatedGraphExec_t exec) {
    return called(gives_back, [&](Runtime &runtime, Lock &) -> Outcome {
        return runtime.execs.erase(exec) == 1 ? qcclEmulatedSuccess : qcclEmulatedErrorInvalidValue;
    });
}
