// Calls on streams of a GPU: a stream that has come to one waits at a gate until a thread of the
// communicator's own has done it. Knows nothing of what a call is, and runs them in the order in
// which they were made; those that a graph replays as soon as a stream comes to them, but those of
// one graph in the order in which they were captured.
#pragma once

#include "api/arrival_naps.hpp"
#include "base/quiet_thread.hpp"
#include "base/result.hpp"
#include "device/gpu_device.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace qccl {

class GpuQueue {
public:
    // What is done when the stream has come; with an error where it never will. `captured` counts,
    // from 1, the calls that were captured; 0: no graph makes this one.
    using Work = std::function<void(const Done &arrived, uint64_t captured)>;

    struct Options {
        std::optional<uint64_t> cpu;     // the only one that the thread runs on
        std::chrono::nanoseconds spin{}; // how long it looks for a stream without sleeping
    };
    // `is_over` says that calls need not wait for streams any more: any thread, any time.
    static Result<std::unique_ptr<GpuQueue>>
    create(std::shared_ptr<Gpu> gpu, const Options &options, std::function<bool()> is_over);
    // Does what is left, and waits until every stream has passed its gates.
    ~GpuQueue();
    GpuQueue(const GpuQueue &) = delete;

    // One thread at a time. After an error other than a refusal the stream may come through the
    // call without it: the caller fails the communicator.
    Done enqueue(GpuStream stream, Work work);
    bool is_idle();
    // Until everything that streams have come to is done.
    void await_all();

private:
    // Marks and calls are nodes that move between lists: once a stream waits at a gate nothing that
    // can fail stands between it and the gate's opening.
    using Marks = std::list<OwnMark>;
    struct Replay;
    struct Item {
        Work work;
        Marks arrival;            // one; none where the stream has arrived
        uint32_t *gate = nullptr; // a replay's is its own
        uint32_t opens = 0;       // the gate's word
        uint64_t captured = 0;
        std::shared_ptr<Replay> replay = nullptr; // whose node it is
    };
    using Items = std::list<Item>;
    // A call in a graph, to which it is tied.
    struct Replay {
        // Of a graph that has ended, when the node is in no queue. Where the communicator has ended
        // before, nobody is left who could take the gate back.
        void give_gate_back();

        std::mutex mutex;
        GpuQueue *queue = nullptr; // null: the communicator has ended, or the graph has
        Items node;                // of the call, while it is in no queue
        uint64_t more = 0;         // times that a stream has come while it was in one
        uint32_t *gate = nullptr;
        bool has_graph = true;
    };
    using ReplayPtr = std::shared_ptr<Replay>;
    // A capture that has had a call, and a mark behind its latest one.
    struct Chain {
        uint64_t capture = 0;
        Marks latest;
    };

    GpuQueue(std::shared_ptr<Gpu> gpu, std::chrono::nanoseconds spin, std::function<bool()> is_over)
        : gpu_(std::move(gpu)), spin_(spin), is_over_(std::move(is_over)) {}
    bool has_work() const { return !queue_.empty() || !arrived_replays_.empty(); }
    bool is_busy() const { return has_work() || is_serving_; }
    Done capture(GpuStream stream, uint64_t capture, Work work);
    Done put_into_graph(GpuStream stream, uint64_t capture, const ReplayPtr &replay);
    static void begin_replay(void *replay);
    static void end_replay(void *replay);
    void take_back(Items &served);
    Done gate_stream(GpuStream stream, const Item &item);
    Result<Marks> take_mark();
    void recycle_passed();
    void push(Items &queue, Items &item);
    void run();
    void serve(Items &queue, const Done &arrived, std::unique_lock<std::mutex> &lock);
    // Until the front call's stream has come, or a replay has.
    std::optional<Done> await_arrival(std::unique_lock<std::mutex> &lock);
    bool await_passages();

    std::shared_ptr<Gpu> gpu_;
    const std::chrono::nanoseconds spin_;
    std::function<bool()> is_over_;
    uint32_t *gate_ = nullptr; // counts calls
    uint32_t issued_ = 0;
    std::vector<std::weak_ptr<Replay>> replays_;
    uint64_t captured_ = 0;
    // Of the latest captures; more at a time than these are nobody's.
    static constexpr size_t most_chains = 8;
    std::list<Chain> chains_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // A call may stand behind replays in its stream.
    Items queue_, arrived_replays_;
    Marks spare_;
    Marks passages_;                // behind the gates of calls, the oldest first
    bool has_lost_passage_ = false; // there is a gate without one
    bool is_serving_ = false, ends_ = false;
    QuietThread thread_; // last: it uses the others
};

} // namespace qccl
