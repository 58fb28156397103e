// Tests the emulated runtime's graphs: captured work runs only when the graph is launched, in the
// captured order. An operation that cannot be captured invalidates the capture and nothing else.
#include "emulated_kit.hpp"

#include <cstring>

using namespace emulated_kit;
using namespace gpu_kit;

namespace {

struct GraphHandle {
    ~GraphHandle() {
        if (graph) qcclEmulatedGraphDestroy(graph);
        if (exec) qcclEmulatedGraphExecDestroy(exec);
    }
    // Ends a capture and instantiates its graph.
    void take(qcclEmulatedStream_t stream) {
        DO(StreamEndCapture(stream, &graph));
        DO(GraphInstantiate(&exec, graph));
    }
    void launch(qcclEmulatedStream_t stream) { DO(GraphLaunch(exec, stream)); }
    qcclEmulatedGraph_t graph = nullptr;
    qcclEmulatedGraphExec_t exec = nullptr;
};

void begin(qcclEmulatedStream_t stream,
           qcclEmulatedCaptureMode_t mode = qcclEmulatedCaptureModeRelaxed) {
    DO(StreamBeginCapture(stream, mode));
}

void check_spoilt(qcclEmulatedStream_t stream) {
    qcclEmulatedGraph_t graph = nullptr;
    REFUSED(StreamCaptureInvalidated, StreamEndCapture(stream, &graph));
    uint64_t capture = 1;
    DO(StreamGetCapture(stream, &capture));
    CHECK(capture == 0);
}

} // namespace

static void what_is_captured_is_replayed() {
    const Ledger ledger;
    {
        const StreamHandle stream;
        const GpuArray<int> array(100);
        std::vector<int> from(100, 1), to(100, 0);
        std::string text;
        Appended appended{&text, 'x'};
        GraphHandle graph;
        begin(stream);
        uint64_t capture = 0;
        DO(StreamGetCapture(stream, &capture));
        CHECK(capture != 0);
        DO(MemcpyAsync(array.at, from.data(), array.bytes(), stream));
        DO(MemcpyAsync(to.data(), array.at, array.bytes(), stream));
        DO(LaunchHostFunc(stream, Appended::write, &appended));
        graph.take(stream);
        DO(StreamSynchronize(stream));
        CHECK(text.empty());
        CHECK_EQ(to[99], 0);
        for (int round = 2; round < 5; round++) {
            std::fill(from.begin(), from.end(), round);
            graph.launch(stream);
            DO(StreamSynchronize(stream));
            CHECK_EQ(to[99], round);
        }
        CHECK_EQ(text, "xxx");
    }
    ledger.check();
}

static void branches_run_beside_each_other() {
    const StreamHandle stream, branch;
    const EventHandle fork, join;
    BlockedStream blocked;
    std::string text;
    Appended a{&text, 'a'}, b{&text, 'b'}, c{&text, 'c'};
    GraphHandle graph;
    begin(stream);
    DO(EventRecord(fork, stream)); // the graph is still empty
    DO(StreamWaitEvent(branch, fork));
    blocked.hold(stream); // the write that releases it is captured later
    DO(LaunchHostFunc(stream, Appended::write, &b));
    DO(LaunchHostFunc(branch, Appended::write, &a));
    DO(StreamWriteValue32(branch, blocked.word(), 1));
    DO(EventRecord(join, branch));
    DO(StreamWaitEvent(stream, join));
    DO(LaunchHostFunc(stream, Appended::write, &c));
    graph.take(stream);
    REFUSED(CapturedEvent, EventQuery(fork));
    REFUSED(CapturedEvent, StreamWaitEvent(branch, join));
    DO(LaunchHostFunc(branch, Appended::write, &a)); // not captured any more
    DO(StreamSynchronize(branch));
    for (int round = 0; round < 3; round++) {
        blocked.shut();
        text.clear();
        graph.launch(stream);
        DO(StreamSynchronize(stream));
        CHECK_EQ(text, "abc");
    }
}

static void launches_of_one_graph_follow_each_other() {
    const StreamHandle stream, other;
    BlockedStream blocked;
    std::string text;
    Appended a{&text, 'a'};
    GraphHandle graph;
    begin(stream);
    DO(LaunchHostFunc(stream, Appended::write, &a));
    graph.take(stream);
    blocked.hold(stream);
    graph.launch(stream);
    graph.launch(other); // waits only for the graph's first launch
    nap();
    CHECK(text.empty());
    blocked.open();
    DO(StreamSynchronize(other));
    CHECK_EQ(text, "aa");
}

static void what_waits_for_the_gpu_spoils_captures() {
    using Modes = std::vector<qcclEmulatedCaptureMode_t>;
    const Modes all = {qcclEmulatedCaptureModeGlobal, qcclEmulatedCaptureModeThreadLocal,
                       qcclEmulatedCaptureModeRelaxed};
    const StreamHandle stream;
    const EventHandle event;
    for (const auto captured : all)
        for (const auto own : all)
            for (const bool is_other : {false, true}) {
                begin(stream, captured);
                qcclEmulatedResult_t result = 0;
                const auto wait = [&] {
                    auto mode = own;
                    qcclEmulatedThreadExchangeCaptureMode(&mode);
                    result = qcclEmulatedEventQuery(event);
                    qcclEmulatedThreadExchangeCaptureMode(&mode);
                };
                if (is_other)
                    std::thread(wait).join();
                else
                    wait();
                const bool spoils = captured != qcclEmulatedCaptureModeRelaxed &&
                                    own != qcclEmulatedCaptureModeRelaxed &&
                                    (!is_other || (captured == qcclEmulatedCaptureModeGlobal &&
                                                   own == qcclEmulatedCaptureModeGlobal));
                CHECK_EQ(result, spoils ? qcclEmulatedErrorStreamCaptureUnsupported : 0);
                if (spoils) {
                    check_spoilt(stream);
                } else {
                    GraphHandle graph;
                    graph.take(stream);
                }
            }
}

static void what_cannot_be_captured_spoils() {
    const StreamHandle stream(true), outside;
    const EventHandle event;
    void *memory = nullptr;
    begin(stream);
    REFUSED(StreamCaptureUnsupported, StreamSynchronize(stream));
    REFUSED(StreamCaptureInvalidated, LaunchHostFunc(
                                          stream, [](void *) {}, nullptr));
    REFUSED(StreamCaptureInvalidated, EventRecord(event, stream));
    check_spoilt(stream);
    begin(stream);
    REFUSED(StreamCaptureUnsupported, MallocAsync(&memory, 10, stream));
    check_spoilt(stream);
    begin(stream); // work outside the capture cannot be waited for
    DO(EventRecord(event, outside));
    REFUSED(StreamCaptureIsolation, StreamWaitEvent(stream, event));
    check_spoilt(stream);
    begin(stream); // the default stream would wait for the capture
    REFUSED(StreamCaptureImplicit, LaunchHostFunc(
                                       nullptr, [](void *) {}, nullptr));
    uint64_t capture = 0;
    REFUSED(StreamCaptureImplicit, StreamGetCapture(nullptr, &capture));
    check_spoilt(stream);
    REFUSED(StreamCaptureUnsupported, StreamBeginCapture(nullptr, qcclEmulatedCaptureModeGlobal));
    DO(StreamGetCapture(nullptr, &capture));
    CHECK(capture == 0);
}

static void captures_end_where_they_began() {
    const StreamHandle stream, branch;
    const EventHandle event;
    qcclEmulatedGraph_t graph = nullptr;
    REFUSED(StreamCaptureUnmatched, StreamEndCapture(stream, &graph));
    begin(stream, qcclEmulatedCaptureModeThreadLocal);
    qcclEmulatedResult_t result = 0;
    std::thread([&] { result = qcclEmulatedStreamEndCapture(stream, &graph); }).join();
    CHECK_EQ(result, qcclEmulatedErrorStreamCaptureWrongThread);
    DO(EventRecord(event, stream));
    DO(StreamWaitEvent(branch, event));
    REFUSED(StreamCaptureUnmatched, StreamEndCapture(branch, &graph));
    DO(LaunchHostFunc(
        branch, [](void *) {}, nullptr));
    REFUSED(StreamCaptureUnjoined, StreamEndCapture(stream, &graph));
    DO(StreamSynchronize(branch)); // both streams are usable again
    DO(StreamSynchronize(stream));
    // The capture ends with its stream.
    {
        const StreamHandle gone;
        begin(gone, qcclEmulatedCaptureModeGlobal);
    }
    DO(DeviceSynchronize());
}

static void failure_in_a_branch_is_the_launch_s() {
    const StreamHandle stream, branch, clean;
    const EventHandle fork, join;
    std::string text;
    Appended appended{&text, 'x'};
    GraphHandle graph;
    begin(stream);
    DO(EventRecord(fork, stream));
    DO(StreamWaitEvent(branch, fork));
    DO(LaunchHostFunc(branch, Appended::write, &appended));
    DO(EventRecord(join, branch));
    DO(StreamWaitEvent(stream, join));
    graph.take(stream);
    qcclEmulatedFailWork(1, qcclEmulatedErrorLaunchFailure);
    graph.launch(stream);
    REFUSED(LaunchFailure, StreamSynchronize(stream));
    CHECK(text.empty());
    graph.launch(clean); // the graph itself is still valid
    DO(StreamSynchronize(clean));
    CHECK_EQ(text, "x");
}

static void what_is_tied_to_a_graph_ends_with_it() {
    const StreamHandle stream;
    std::atomic<int> ended = 0;
    const qcclEmulatedHostFn_t end = [](void *count) { ++*static_cast<std::atomic<int> *>(count); };
    BlockedStream blocked;
    qcclEmulatedGraph_t graph = nullptr;
    qcclEmulatedGraphExec_t exec = nullptr;
    REFUSED(InvalidValue, CaptureUserObject(stream, end, &ended)); // no capture is active
    begin(stream);
    blocked.hold(stream);
    DO(CaptureUserObject(stream, end, &ended));
    DO(StreamEndCapture(stream, &graph));
    DO(GraphInstantiate(&exec, graph));
    DO(GraphDestroy(graph));
    CHECK_EQ(ended, 0);
    DO(GraphLaunch(exec, stream));
    DO(GraphExecDestroy(exec));
    nap();
    CHECK_EQ(ended, 0); // the launch is still running
    blocked.open();
    DO(StreamSynchronize(stream));
    CHECK_EQ(ended, 1);
    begin(stream); // this capture fails and leaves no graph
    DO(CaptureUserObject(stream, end, &ended));
    void *memory = nullptr;
    REFUSED(StreamCaptureUnsupported, MallocAsync(&memory, 10, stream));
    REFUSED(StreamCaptureInvalidated, CaptureUserObject(stream, end, &ended));
    check_spoilt(stream);
    CHECK_EQ(ended, 2);
}

static void a_gpu_works_while_others_capture() {
    const StreamHandle stream;
    const auto gpu = open_gpu(0);
    begin(stream, qcclEmulatedCaptureModeGlobal);
    const auto mark = gpu->create_event();
    const auto own = gpu->create_stream(qccl::StreamPriority::usual);
    CHECK(mark && own);
    for (const auto allocate :
         {&qccl::Gpu::pool_acquire, &qccl::Gpu::allocate_private, &qccl::Gpu::acquire_pinned}) {
        const auto memory = (gpu.get()->*allocate)(100);
        CHECK_OK(memory);
        CHECK_OK(gpu->find(*memory));
        CHECK_OK(gpu->copy(*own, *memory, *memory, 50));
        CHECK_OK(gpu->record_event(*mark, *own));
        CHECK_OK(gpu->has_passed(*mark));
        CHECK_OK(gpu->synchronize(*own));
        if (allocate == &qccl::Gpu::pool_acquire)
            gpu->pool_release(*memory, 100);
        else if (allocate == &qccl::Gpu::allocate_private)
            gpu->free_private(*memory);
        else
            gpu->release_pinned(*memory, 100);
    }
    std::vector<std::byte> mine(100);
    CHECK_OK(gpu->pin(mine.data(), mine.size()));
    gpu->unpin(mine.data());
    const auto handle = reinterpret_cast<qccl::GpuStream>(stream.handle);
    const auto is = gpu->capture_of(handle), is_not = gpu->capture_of(*own);
    CHECK_OK(is);
    CHECK_OK(is_not);
    CHECK(*is != 0);
    CHECK(*is_not == 0);
    // Work that is enqueued on the capturing stream becomes part of the graph.
    const auto blocked = gpu->create_stream_wait();
    CHECK_OK(blocked);
    std::string text;
    Appended appended{&text, 'x'};
    CHECK_OK(gpu->await_stream_wait(handle, *blocked, 1));
    CHECK_OK(gpu->call_host(handle, Appended::write, &appended));
    GraphHandle graph;
    graph.take(stream);
    CHECK(text.empty());
    std::atomic_ref(**blocked).store(1);
    graph.launch(stream);
    DO(StreamSynchronize(stream));
    CHECK_EQ(text, "x");
    gpu->destroy_stream_wait(*blocked);
    gpu->destroy_event(*mark);
    gpu->destroy_stream(*own);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_is_captured_is_replayed),
        QTEST(branches_run_beside_each_other),
        QTEST(launches_of_one_graph_follow_each_other),
        QTEST(what_waits_for_the_gpu_spoils_captures),
        QTEST(what_cannot_be_captured_spoils),
        QTEST(captures_end_where_they_began),
        QTEST(failure_in_a_branch_is_the_launch_s),
        QTEST(what_is_tied_to_a_graph_ends_with_it),
        QTEST(a_gpu_works_while_others_capture),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
