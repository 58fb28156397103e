// Calls on streams of a GPU: a stream that has come to one waits at a gate until a thread of the
// communicator's own has done it. Knows nothing of what a call is, and runs them in the order in
// which they were made; those that a graph replays as soon as a stream comes to them.
#pragma once

#include "base/quiet_thread.hpp"
#include "base/result.hpp"
#include "device/gpu_device.hpp"

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
    // What is done when the stream has come; with an error where it never will.
    using Work = std::function<void(const Done &arrived)>;

    // `is_over` says that calls need not wait for streams any more: any thread, any time.
    static Result<std::unique_ptr<GpuQueue>>
    create(std::shared_ptr<Gpu> gpu, std::optional<uint64_t> cpu, std::function<bool()> is_over);
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
        Marks arrival; // one; none where the stream has arrived
        uint32_t *gate = nullptr;
        uint32_t opens = 0;       // the gate's word
        Replay *replay = nullptr; // whose node it is
    };
    using Items = std::list<Item>;
    // A call in a graph: lives as long as the process, because nobody says when a graph ends.
    struct Replay {
        std::mutex mutex;
        GpuQueue *queue; // null: the communicator has ended
        Items node;      // of the call, while it is in no queue
        uint32_t *gate;
    };

    GpuQueue(std::shared_ptr<Gpu> gpu, std::function<bool()> is_over)
        : gpu_(std::move(gpu)), is_over_(std::move(is_over)) {}
    bool has_work() const { return !queue_.empty() || !arrived_replays_.empty(); }
    bool is_busy() const { return has_work() || is_serving_; }
    Done capture(GpuStream stream, Work work);
    static void begin_replay(void *replay);
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
    std::function<bool()> is_over_;
    uint32_t *gate_ = nullptr; // counts calls
    uint32_t issued_ = 0;
    std::vector<Replay *> replays_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // A call may stand behind replays in its stream.
    Items queue_, arrived_replays_;
    Marks spare_;
    Marks passages_; // behind the gates of calls, the oldest first
    bool is_serving_ = false, ends_ = false;
    QuietThread thread_; // last: it uses the others
};

} // namespace qccl
