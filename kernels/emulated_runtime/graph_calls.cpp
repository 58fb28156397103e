// The emulated runtime's C API for captures and graphs. Any thread may call; no call waits for a
// GPU.
#include "kernels/emulated_runtime/runtime.hpp"

#include <utility>

namespace qccl::emulated {
namespace {

// Launches a graph. The first lane runs in the launch's stream, every other lane in a stream of its
// own, so that nodes that were independent in the capture stay independent.
Outcome launch(Runtime &runtime, GraphExec &exec, const StreamPtr &stream) {
    if (Outcome start = runtime.put(stream, nullptr,
                                    exec.last ? std::vector<Dependency>{{exec.last}}
                                              : std::vector<Dependency>{});
        !start.is_ok())
        return start;
    if (Outcome few = runtime.workers.prepare(exec.graph.lanes); !few.is_ok()) return few;
    const Dependency start{.point = stream->last, .shares_failure = true};
    std::vector<StreamPtr> lanes{stream};
    while (lanes.size() < exec.graph.lanes) {
        lanes.push_back(std::make_shared<Stream>());
        lanes.back()->device = stream->device;
    }
    std::vector<PointPtr> points;
    for (const Node &node : exec.graph.nodes) {
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
        auto made = std::make_unique<Graph>();
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
        return launch(runtime, *found->second, stream);
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
