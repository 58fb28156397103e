// The streams on which a communicator's calls run. Comm uses both kinds; the C functions of
// streams, collectives and codecs use host streams.
// Stream is a host stream: a queue of work, and a thread that runs it in order. Work that depends
// on other streams waits for them itself. Any thread may use a stream; synchronize and the
// destructor wait until the queue is empty. StreamRequest is what a program holds of a point in a
// stream: it is done when the work before that point is done. Any thread may ask whether it is;
// await_any waits for the first of several.
// GpuStreamQueue holds calls on GPU streams: a stream that reaches a call waits until a thread of
// the communicator has made the call. Calls run in the order in which they were enqueued. A call
// that a graph replays runs as soon as a stream reaches it, and the calls of one graph run in the
// order in which they were captured. await_all and the destructor block. ArrivalNaps says how long
// that thread sleeps between two polls of a stream that has not reached a call yet; one thread uses
// it and does the sleeping.
#pragma once

#include "base/result.hpp"
#include "base/system.hpp"
#include "comm/handle_table.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <qccl/qccl.h>

namespace qccl {

// ---- Host streams

// The first error of a stream's work that the caller has not received.
struct UntoldError {
    std::optional<Error> error{};
    // Set to true when the caller has received the error; may be null.
    std::shared_ptr<std::atomic<bool>> told = nullptr;

    // Returns the error, which the caller then has received.
    Done tell();
};

class StreamRequest {
public:
    explicit StreamRequest(std::thread::id stream_thread) : stream_thread_(stream_thread) {}
    StreamRequest(const StreamRequest &) = delete;

    bool is_done() const { return is_done_.load(std::memory_order_acquire); }
    // Whether the calling thread is the one that the request waits for.
    bool is_of_this_thread() const { return stream_thread_ == std::this_thread::get_id(); }
    // Called once. `untold`: what the request carries from now on.
    void finish(UntoldError untold);
    // Returns the error that the request carries. Requires is_done(); one thread calls it, once.
    Done tell() { return untold_.tell(); }
    // Waits until one of the requests, none of which is null, is done.
    static void await_any(std::span<StreamRequest *const> requests);

private:
    struct WaitingThread;
    // Before a thread that waits goes to sleep.
    static constexpr unsigned most_yields = 64;

    const std::thread::id stream_thread_;
    std::atomic<bool> is_done_{false};
    UntoldError untold_; // written before is_done_
    std::mutex mutex_;
    std::vector<std::shared_ptr<WaitingThread>> waiting_; // of threads that wait
};

struct WorkItem {
    std::function<Done()> run;
    // As UntoldError::told, for the work's error.
    std::shared_ptr<std::atomic<bool>> told = nullptr;
    // They are done when this work is.
    std::vector<std::shared_ptr<StreamRequest>> requests{};
};

class Stream {
public:
    // `cpu`: the only CPU that the thread runs on; nothing: any.
    static Result<std::unique_ptr<Stream>> create(std::optional<uint64_t> cpu);
    ~Stream();
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;

    void enqueue(WorkItem work);
    // Returns a request for the work that is enqueued now. It takes the error that synchronize and
    // query would return, if they have not returned it by the time that the request is done.
    std::shared_ptr<StreamRequest> record();
    // Each returns the first error since the last one that was returned, once. query returns
    // in_progress while work is left.
    Done synchronize();
    Done query();

    bool is_this_thread() const { return thread_.id() == std::this_thread::get_id(); }

private:
    Stream() = default;
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<WorkItem> queue_; // the front item is running
    UntoldError untold_;
    bool ends_ = false;
    ServiceThread thread_; // last: it uses all of the above
};

using StreamHandles = HandleTable<HandleRecord<Stream>>;
using StreamRef = StreamHandles::Reference;
extern constinit StreamHandles stream_handles;

// Whether a call with this handle on a communicator of the host returns when it is done.
inline bool blocks(qcclStream_t handle) { return !handle || handle == QCCL_STREAM_SYNC; }
// Returns no stream for NULL and QCCL_STREAM_SYNC (the call returns when done), else a stream of
// the host.
Result<StreamRef> take_stream(qcclStream_t handle);

// A host stream of the library's own, with a handle like a caller's. Its thread starts when it is
// first used. Used by one thread.
class ChannelStream {
public:
    ChannelStream() = default;
    ~ChannelStream();
    ChannelStream(const ChannelStream &) = delete;

    Result<StreamRef> get();

private:
    qcclStream_t handle_ = nullptr;
};

// ---- Sleeps between polls

class ArrivalNaps {
public:
    using Time = std::chrono::nanoseconds;

    // The usual spin. A call on an idle stream arrives within this time, so the thread notices it
    // without sleeping.
    static constexpr Time usual_spin = std::chrono::microseconds(50);

    // `spin`: how long the thread polls without sleeping; 0: it sleeps after every poll.
    explicit ArrivalNaps(Time spin) : spin_(spin) {}

    // Returns how long to sleep after a poll; 0: poll again at once. `waited` is the time since the
    // first poll.
    Time next(Time waited) {
        if (waited < spin_) return {};
        const Time nap = nap_;
        nap_ = std::min(2 * nap_, longest);
        return nap;
    }

private:
    static constexpr Time shortest = std::chrono::microseconds(5);
    static constexpr Time longest = std::chrono::microseconds(50);

    Time spin_;
    Time nap_ = shortest;
};

// ---- GPU streams

class GpuStreamQueue {
public:
    // Runs when the stream has reached the call, or with an error if the stream never will.
    // `captured` counts the captured calls from 1; 0: the call is not in a graph.
    using Work = std::function<void(const Done &arrived, uint64_t captured)>;

    struct QueueOptions {
        std::optional<uint64_t> cpu;     // the only CPU that the thread runs on
        std::chrono::nanoseconds spin{}; // how long it polls a stream without sleeping
    };
    // `is_over` returns true when calls need not wait for streams any more; any thread may call it
    // at any time.
    static Result<std::unique_ptr<GpuStreamQueue>>
    create(std::shared_ptr<Gpu> gpu, const QueueOptions &options, std::function<bool()> is_over);
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
