// Calls on GPU streams: a stream that reaches a call waits until a thread of the communicator has
// made the call. Calls run in the order in which they were enqueued. A call that a graph replays
// runs as soon as a stream reaches it, and the calls of one graph run in the order in which they
// were captured. Used by Comm; await_all and the destructor block.
#pragma once

#include "api/arrival_naps.hpp"
#include "base/service_thread.hpp"
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

class GpuStreamQueue {
public:
    // Runs when the stream has reached the call, or with an error if the stream never will.
    // `captured` counts the captured calls from 1; 0: the call is not in a graph.
    using Work = std::function<void(const Done &arrived, uint64_t captured)>;

    struct Options {
        std::optional<uint64_t> cpu;     // the only CPU that the thread runs on
        std::chrono::nanoseconds spin{}; // how long it polls a stream without sleeping
    };
    // `is_over` returns true when calls need not wait for streams any more; any thread may call it
    // at any time.
    static Result<std::unique_ptr<GpuStreamQueue>>
    create(std::shared_ptr<Gpu> gpu, const Options &options, std::function<bool()> is_over);
    // Runs the remaining calls, and waits until every stream has passed its waits.
    ~GpuStreamQueue();
    GpuStreamQueue(const GpuStreamQueue &) = delete;

    // One thread at a time. After an error other than a refusal, the stream may pass the call
    // without it being made, so the caller fails the communicator.
    Done enqueue(GpuStream stream, Work work);
    bool is_idle();
    // Waits until all calls that were enqueued, or that streams have reached in graphs, are done.
    void await_all();

private:
    // Events and calls are list nodes that move between lists, so that nothing that can fail
    // happens between a stream's wait and the release of that wait.
    using Marks = std::list<GpuEvent>;
    struct Replay;
    struct Item {
        Work work;
        Marks arrival;            // one; none if the stream has arrived
        uint32_t *wait = nullptr; // a replay has its own
        uint32_t opens = 0;       // value of the word that releases it
        uint64_t captured = 0;
        std::shared_ptr<Replay> replay = nullptr; // owner of this node
    };
    using Items = std::list<Item>;
    // A call in a graph, tied to the graph's lifetime.
    struct Replay {
        // Called when the graph has ended and the node is in no queue. If the communicator has
        // ended before, the wait is not freed, because the queue with its GPU is gone.
        void give_wait_back();

        std::mutex mutex;
        GpuStreamQueue *queue = nullptr; // null: the communicator or the graph has ended
        Items node;                      // of the call, while it is in no queue
        uint64_t more = 0;               // times that a stream came while the node was in one
        uint32_t *wait = nullptr;
        bool has_graph = true;
    };
    using ReplayPtr = std::shared_ptr<Replay>;
    // A capture that has had a call, and an event behind the latest call.
    struct Chain {
        uint64_t capture = 0;
        Marks latest;
    };

    GpuStreamQueue(std::shared_ptr<Gpu> gpu, std::chrono::nanoseconds spin,
                   std::function<bool()> is_over)
        : gpu_(std::move(gpu)), spin_(spin), is_over_(std::move(is_over)) {}
    bool has_work() const { return !queue_.empty() || !arrived_replays_.empty(); }
    bool is_busy() const { return has_work() || is_serving_; }
    Done capture(GpuStream stream, uint64_t capture, Work work);
    Done put_into_graph(GpuStream stream, uint64_t capture, const ReplayPtr &replay);
    static void begin_replay(void *replay);
    static void end_replay(void *replay);
    void take_back(Items &served);
    Done wait_stream(GpuStream stream, const Item &item);
    Result<Marks> take_mark();
    void recycle_passed();
    void push(Items &queue, Items &item);
    void run();
    void serve(Items &queue, const Done &arrived, std::unique_lock<std::mutex> &lock);
    // Waits until the front call's stream has arrived. Returns nothing if a replay arrives before.
    std::optional<Done> await_arrival(std::unique_lock<std::mutex> &lock);
    bool await_passages();

    std::shared_ptr<Gpu> gpu_;
    const std::chrono::nanoseconds spin_;
    std::function<bool()> is_over_;
    uint32_t *wait_ = nullptr; // its word counts calls
    uint32_t issued_ = 0;
    std::vector<std::weak_ptr<Replay>> replays_;
    uint64_t captured_ = 0;
    // Chains of the latest captures. No program has more captures in progress than this.
    static constexpr size_t most_chains = 8;
    std::list<Chain> chains_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // Two queues, because an enqueued call may stand behind replays in its stream.
    Items queue_, arrived_replays_;
    Marks spare_;
    Marks passages_;                // behind the waits of calls, oldest first
    bool has_lost_passage_ = false; // a wait has no event behind it
    bool is_serving_ = false, ends_ = false;
    ServiceThread thread_; // last: it uses the others
};

} // namespace qccl
