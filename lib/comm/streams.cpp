// Implements host streams and requests, and calls on GPU streams with GPU events, stream waits and
// host callbacks in graphs.
#include "comm/streams.hpp"

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <thread>

#include <sys/prctl.h>
#include <unistd.h>

namespace qccl {

// Restricts a thread of streams to the CPU that the settings name, if any.
static Done pin(ServiceThread &thread, std::optional<uint64_t> cpu) {
    const Done pinned = cpu ? thread.pin(*cpu) : Done();
    if (pinned) return {};
    return Error::make(pinned.error().code, "QCCL_PROGRESS_CPU=%" PRIu64 ": %s", *cpu,
                       pinned.error().text);
}

// ---- Requests

Done UntoldError::tell() {
    if (!error) return {};
    const Error told_now = *error;
    if (told) told->store(true, std::memory_order_relaxed);
    *this = {};
    return told_now;
}

// A thread that waits for several requests sleeps once for all of them. Requests share it, so that
// they wake the thread when they hold no lock that it needs.
struct StreamRequest::WaitingThread {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_woken = false;

    void wake() {
        {
            const std::lock_guard lock(mutex);
            is_woken = true;
        }
        changed.notify_all();
    }
    void sleep() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return is_woken; });
    }
};

void StreamRequest::finish(UntoldError untold) {
    untold_ = std::move(untold);
    std::vector<std::shared_ptr<WaitingThread>> waiting;
    {
        const std::lock_guard lock(mutex_);
        is_done_.store(true, std::memory_order_release);
        waiting = std::move(waiting_);
    }
    for (const auto &each : waiting) each->wake();
}

void StreamRequest::await_any(std::span<StreamRequest *const> requests) {
    const auto is_any_done = [&] { return std::ranges::any_of(requests, &StreamRequest::is_done); };
    // The stream's thread may have no other core. A small call is over before these yields are.
    for (unsigned yields = 0; yields < most_yields; yields++) {
        if (is_any_done()) return;
        std::this_thread::yield();
    }
    const auto self = std::make_shared<WaitingThread>();
    for (StreamRequest *const request : requests) {
        const std::lock_guard lock(request->mutex_);
        if (request->is_done()) self->wake();
        request->waiting_.push_back(self);
    }
    self->sleep();
    for (StreamRequest *const request : requests) {
        const std::lock_guard lock(request->mutex_);
        std::erase(request->waiting_, self);
    }
}

// ---- Host streams

Result<std::unique_ptr<Stream>> Stream::create(std::optional<uint64_t> cpu) {
    std::unique_ptr<Stream> stream(new Stream());
    QCCL_TRY(stream->thread_,
             ServiceThread::start(stream_thread_name, [s = stream.get()] { s->run(); }));
    QCCL_TRY(pin(stream->thread_, cpu));
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
        WorkItem &item = queue_.front();
        lock.unlock();
        const Done done = exception_boundary(item.run);
        item.run = nullptr; // may end a communicator, which waits for peers
        lock.lock();
        if (!done && !untold_.error) untold_ = {done.error(), std::move(item.told)};
        const auto requests = std::move(item.requests);
        UntoldError taken = requests.empty() ? UntoldError() : std::exchange(untold_, {});
        queue_.pop_front();
        changed_.notify_all();
        if (requests.empty()) continue;
        lock.unlock();
        for (const auto &request : requests) request->finish(std::exchange(taken, {}));
        lock.lock();
    }
}

std::shared_ptr<StreamRequest> Stream::record() {
    auto request = std::make_shared<StreamRequest>(thread_.id());
    const std::lock_guard lock(mutex_);
    if (queue_.empty())
        request->finish(std::exchange(untold_, {}));
    else
        queue_.back().requests.push_back(request);
    return request;
}

Done Stream::synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
    return untold_.tell();
}

Done Stream::query() {
    const std::lock_guard lock(mutex_);
    QCCL_TRY(untold_.tell());
    if (queue_.empty()) return {};
    return Error::make(Code::in_progress, "%zu calls are not done yet", queue_.size());
}

constinit StreamHandles stream_handles{{.tag = 0x51C2,
                                        .argument = "stream",
                                        .unknown = "no qcclStreamCreate made",
                                        .ended = "destroyed",
                                        .is_inherited = false}};

Result<StreamRef> take_stream(qcclStream_t handle) {
    if (blocks(handle)) return StreamRef();
    return stream_handles.refer(handle);
}

Result<StreamRef> ChannelStream::get() {
    if (!handle_) {
        QCCL_TRY(auto stream, Stream::create(std::nullopt));
        QCCL_TRY(handle_, stream_handles.add(std::move(stream)));
    }
    return stream_handles.refer(handle_);
}

// Waits for the work that is left.
ChannelStream::~ChannelStream() {
    if (!handle_) return;
    auto taken = stream_handles.refer(handle_);
    if (taken && taken->end()) taken->await_others();
}

// ---- GPU streams

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds between_looks_at_passages = 50us;
// A stream that takes longer after its wait is released is held up by something else.
constexpr std::chrono::nanoseconds longest_passage = 2s;

void pause(std::chrono::nanoseconds nap) {
    if (nap == 0ns)
        std::this_thread::yield(); // the caller's thread may have no other core
    else
        std::this_thread::sleep_for(nap);
}

void set(uint32_t *wait, uint32_t word) {
    std::atomic_ref(*wait).store(word, std::memory_order_release);
}

} // namespace

Result<std::unique_ptr<GpuStreamQueue>> GpuStreamQueue::create(std::shared_ptr<Gpu> gpu,
                                                               const QueueOptions &options,
                                                               std::function<bool()> is_over) {
    std::unique_ptr<GpuStreamQueue> queue(
        new GpuStreamQueue(std::move(gpu), options.spin, std::move(is_over)));
    if (queue->gpu_->traits().has_stream_waits) {
        QCCL_TRY(queue->wait_, queue->gpu_->create_stream_wait());
    }
    QCCL_TRY(queue->thread_,
             ServiceThread::start(stream_thread_name, [q = queue.get()] { q->run(); }));
    QCCL_TRY(pin(queue->thread_, options.cpu));
    return queue;
}

GpuStreamQueue::~GpuStreamQueue() {
    for (const auto &each : replays_)
        if (const ReplayPtr replay = each.lock()) {
            const std::lock_guard lock(replay->mutex);
            replay->queue = nullptr;
            replay->node.clear();
        }
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
    // If a stream may still read the wait's word, the word is not freed.
    if (wait_ && await_passages()) gpu_->destroy_stream_wait(wait_);
}

bool GpuStreamQueue::await_passages() {
    if (has_lost_passage_) return false;
    const auto deadline = std::chrono::steady_clock::now() + longest_passage;
    for (const GpuEvent &passage : passages_)
        for (;;) {
            const auto has_passed = passage.has_passed();
            if (has_passed && *has_passed) break;
            if (!has_passed || std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(between_looks_at_passages);
        }
    return true;
}

Done GpuStreamQueue::enqueue(GpuStream stream, Work work) {
    const GpuTraits &traits = gpu_->traits();
    if (!traits.has_stream_waits)
        return Error::make(Code::invalid_usage,
                           "stream: streams of %s are not made to wait for the host; "
                           "QCCL_STREAM_SYNC is possible",
                           traits.name.c_str());
    QCCL_TRY(const uint64_t capture, gpu_->capture_of(stream));
    if (capture != 0) return this->capture(stream, capture, std::move(work));
    recycle_passed();
    QCCL_TRY(Marks arrival, take_mark());
    Items item;
    item.push_back({.work = std::move(work), .arrival = std::move(arrival), .wait = wait_});
    QCCL_TRY(item.front().arrival.front().set(stream));
    item.front().opens = ++issued_;
    const Done waits = wait_stream(stream, item.front());
    // The stream may wait there even after an error, so the item stays in the queue, and its turn
    // releases the wait.
    if (!waits) item.front().work = nullptr;
    push(queue_, item);
    return waits;
}

Done GpuStreamQueue::wait_stream(GpuStream stream, const Item &item) {
    QCCL_TRY(Marks passage, take_mark());
    QCCL_TRY(gpu_->await_stream_wait(stream, item.wait, item.opens));
    const Done set = passage.front().set(stream);
    if (set)
        passages_.splice(passages_.end(), passage);
    else
        has_lost_passage_ = true;
    return set;
}

Done GpuStreamQueue::capture(GpuStream stream, uint64_t capture, Work work) {
    if (!gpu_->traits().can_capture)
        return Error::make(Code::invalid_usage, "stream: calls on %s cannot be captured",
                           gpu_->traits().name.c_str());
    std::erase_if(replays_, [](const auto &replay) { return replay.expired(); });
    const auto replay = std::make_shared<Replay>();
    QCCL_TRY(replay->wait, gpu_->create_stream_wait());
    replay->queue = this;
    replay->node.push_back({.work = std::move(work), .arrival = {}, .captured = captured_ + 1});
    replays_.push_back(replay);
    if (const Done put = put_into_graph(stream, capture, replay); !put) {
        // The graph may hold part of the call. Without work that part does nothing.
        const std::lock_guard lock(replay->mutex);
        for (Item &item : replay->node) item.work = nullptr;
        return Error::make(Code::invalid_usage, "stream: the call cannot be captured: %.200s",
                           put.error().text);
    }
    captured_++;
    return {};
}

// In one graph, calls run in the order in which they were captured, also in parallel branches,
// which would otherwise run in a different order on every rank.
Done GpuStreamQueue::put_into_graph(GpuStream stream, uint64_t capture, const ReplayPtr &replay) {
    QCCL_TRY(Marks latest, take_mark());
    GpuEvent &mark = latest.front();
    QCCL_TRY(mark.set(stream)); // refuses another GPU's stream before its graph has changed
    auto tied = std::make_unique<ReplayPtr>(replay);
    void *const context = tied.get();
    QCCL_TRY(gpu_->tie_to_graph(stream, end_replay, tied.release()));
    auto chain = std::ranges::find(chains_, capture, &Chain::capture);
    if (chain != chains_.end()) QCCL_TRY(chain->latest.front().hold(stream));
    QCCL_TRY(gpu_->call_host(stream, begin_replay, context));
    QCCL_TRY(gpu_->await_stream_wait(stream, replay->wait, 1));
    QCCL_TRY(mark.set(stream));
    if (chain == chains_.end()) {
        if (chains_.size() == most_chains) chains_.pop_front();
        chain = chains_.insert(chains_.end(), {.capture = capture, .latest = {}});
    }
    chain->latest = std::move(latest);
    return {};
}

// The stream has passed the wait's previous release, because launches of one instantiated graph
// follow each other. If a graph is instantiated twice, its launches may overlap; they pass
// together, when the call has been made for each.
void GpuStreamQueue::begin_replay(void *context) {
    const auto &replay = *static_cast<const ReplayPtr *>(context);
    const std::lock_guard lock(replay->mutex);
    if (!replay->queue) return set(replay->wait, 1);
    set(replay->wait, 0);
    if (replay->node.empty()) {
        replay->more++;
        return;
    }
    replay->node.front().replay = replay;
    replay->queue->push(replay->queue->arrived_replays_, replay->node);
}

void GpuStreamQueue::end_replay(void *context) {
    const std::unique_ptr<ReplayPtr> tied(static_cast<ReplayPtr *>(context));
    Replay &replay = **tied;
    const std::lock_guard lock(replay.mutex);
    replay.has_graph = false;
    if (!replay.node.empty()) replay.give_wait_back();
}

void GpuStreamQueue::Replay::give_wait_back() {
    if (queue) queue->gpu_->destroy_stream_wait(wait);
    queue = nullptr;
    node.clear();
}

Result<GpuStreamQueue::Marks> GpuStreamQueue::take_mark() {
    Marks mark;
    {
        const std::lock_guard lock(mutex_);
        if (!spare_.empty()) {
            mark.splice(mark.begin(), spare_, spare_.begin());
            return mark;
        }
    }
    QCCL_TRY(GpuEvent made, GpuEvent::create(gpu_));
    mark.push_back(std::move(made));
    return mark;
}

void GpuStreamQueue::recycle_passed() {
    while (!passages_.empty()) {
        const auto has_passed = passages_.front().has_passed();
        if (!has_passed || !*has_passed) return;
        const std::lock_guard lock(mutex_);
        spare_.splice(spare_.end(), passages_, passages_.begin());
    }
}

bool GpuStreamQueue::is_idle() {
    const std::lock_guard lock(mutex_);
    return !is_busy();
}

void GpuStreamQueue::await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_busy(); });
}

void GpuStreamQueue::push(Items &queue, Items &item) {
    const std::lock_guard lock(mutex_);
    queue.splice(queue.end(), item);
    changed_.notify_all();
}

void GpuStreamQueue::run() {
    // Linux may lengthen a sleep by 50 us, which is more than a small call takes, unless the thread
    // sets its timer slack.
    prctl(PR_SET_TIMERSLACK, 1UL);
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ends_ || has_work(); });
        if (!has_work()) return;
        if (!arrived_replays_.empty())
            serve(arrived_replays_, {}, lock);
        else if (const auto arrived = await_arrival(lock))
            serve(queue_, *arrived, lock);
    }
}

void GpuStreamQueue::serve(Items &queue, const Done &arrived, std::unique_lock<std::mutex> &lock) {
    Items served;
    served.splice(served.begin(), queue, queue.begin());
    Item &item = served.front();
    is_serving_ = true;
    lock.unlock();
    if (item.work) item.work(arrived, item.captured);
    if (item.replay)
        take_back(served);
    else
        set(item.wait, item.opens);
    lock.lock();
    if (!served.empty()) spare_.splice(spare_.end(), item.arrival);
    is_serving_ = false;
    changed_.notify_all();
}

// The graph's next launch takes the node, so the node comes back before the wait is released.
void GpuStreamQueue::take_back(Items &served) {
    const ReplayPtr replay = std::move(served.front().replay);
    const std::lock_guard lock(replay->mutex);
    if (!replay->has_graph) return replay->give_wait_back();
    if (replay->queue && replay->more > 0) {
        replay->more--;
        served.front().replay = replay;
        return push(arrived_replays_, served);
    }
    if (replay->queue) replay->node.splice(replay->node.begin(), served);
    set(replay->wait, 1);
}

std::optional<Done> GpuStreamQueue::await_arrival(std::unique_lock<std::mutex> &lock) {
    const GpuEvent &arrival = queue_.front().arrival.front();
    ArrivalNaps naps(spin_);
    const auto begin = std::chrono::steady_clock::now();
    while (arrived_replays_.empty()) {
        lock.unlock();
        const bool is_over = is_over_();
        const auto has_passed = arrival.has_passed();
        const bool must_wait = !is_over && has_passed && !*has_passed;
        if (must_wait) pause(naps.next(std::chrono::steady_clock::now() - begin));
        lock.lock();
        if (!must_wait) return outcome(has_passed);
    }
    return std::nullopt;
}

} // namespace qccl
