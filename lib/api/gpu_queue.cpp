#include "api/gpu_queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include <sys/prctl.h>

namespace qccl {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds between_looks_at_passages = 50us;
// Once its gate is open, a stream that does not pass it is held up by something else.
constexpr std::chrono::nanoseconds longest_passage = 2s;

void pause(std::chrono::nanoseconds nap) {
    if (nap == 0ns)
        std::this_thread::yield(); // the caller's thread may have no other core
    else
        std::this_thread::sleep_for(nap);
}

void set(uint32_t *gate, uint32_t word) {
    std::atomic_ref(*gate).store(word, std::memory_order_release);
}

} // namespace

Result<std::unique_ptr<GpuQueue>> GpuQueue::create(std::shared_ptr<Gpu> gpu, const Options &options,
                                                   std::function<bool()> is_over) {
    std::unique_ptr<GpuQueue> queue(new GpuQueue(std::move(gpu), options.spin, std::move(is_over)));
    if (queue->gpu_->traits().has_gates) {
        QCCL_TRY(queue->gate_, queue->gpu_->create_gate());
    }
    QCCL_TRY(queue->thread_,
             QuietThread::start(stream_thread_name, [q = queue.get()] { q->run(); }));
    if (options.cpu) QCCL_TRY(queue->thread_.pin(*options.cpu));
    return queue;
}

GpuQueue::~GpuQueue() {
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
    // A stream that may still look at the gate's word keeps it.
    if (gate_ && await_passages()) gpu_->destroy_gate(gate_);
}

bool GpuQueue::await_passages() {
    if (has_lost_passage_) return false;
    const auto deadline = std::chrono::steady_clock::now() + longest_passage;
    for (const OwnMark &passage : passages_)
        for (;;) {
            const auto is_passed = passage.is_passed();
            if (is_passed && *is_passed) break;
            if (!is_passed || std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(between_looks_at_passages);
        }
    return true;
}

Done GpuQueue::enqueue(GpuStream stream, Work work) {
    const GpuTraits &traits = gpu_->traits();
    if (!traits.has_gates)
        return Error::make(Code::invalid_usage,
                           "stream: streams of %s are not made to wait for the host; "
                           "QCCL_STREAM_SYNC is possible",
                           traits.name.c_str());
    QCCL_TRY(const uint64_t capture, gpu_->capture_of(stream));
    if (capture != 0) return this->capture(stream, capture, std::move(work));
    recycle_passed();
    QCCL_TRY(Marks arrival, take_mark());
    Items item;
    item.push_back({.work = std::move(work), .arrival = std::move(arrival), .gate = gate_});
    QCCL_TRY(item.front().arrival.front().set(stream));
    item.front().opens = ++issued_;
    const Done gated = gate_stream(stream, item.front());
    // The stream may wait there all the same: the gate opens when its turn has come.
    if (!gated) item.front().work = nullptr;
    push(queue_, item);
    return gated;
}

Done GpuQueue::gate_stream(GpuStream stream, const Item &item) {
    QCCL_TRY(Marks passage, take_mark());
    QCCL_TRY(gpu_->await_gate(stream, item.gate, item.opens));
    const Done set = passage.front().set(stream);
    if (set)
        passages_.splice(passages_.end(), passage);
    else
        has_lost_passage_ = true;
    return set;
}

Done GpuQueue::capture(GpuStream stream, uint64_t capture, Work work) {
    if (!gpu_->traits().can_capture)
        return Error::make(Code::invalid_usage, "stream: calls on %s cannot be captured",
                           gpu_->traits().name.c_str());
    std::erase_if(replays_, [](const auto &replay) { return replay.expired(); });
    const auto replay = std::make_shared<Replay>();
    QCCL_TRY(replay->gate, gpu_->create_gate());
    replay->queue = this;
    replay->node.push_back({.work = std::move(work), .arrival = {}, .captured = captured_ + 1});
    replays_.push_back(replay);
    if (const Done put = put_into_graph(stream, capture, replay); !put) {
        // What the graph may hold of the call makes none.
        const std::lock_guard lock(replay->mutex);
        for (Item &item : replay->node) item.work = nullptr;
        return Error::make(Code::invalid_usage, "stream: the call cannot be captured: %.200s",
                           put.error().text);
    }
    captured_++;
    return {};
}

// In one graph calls come in the order in which they were captured, also in branches beside each
// other, which would come in an order of their own on every rank.
Done GpuQueue::put_into_graph(GpuStream stream, uint64_t capture, const ReplayPtr &replay) {
    QCCL_TRY(Marks latest, take_mark());
    OwnMark &mark = latest.front();
    QCCL_TRY(mark.set(stream)); // another GPU's stream is refused before anything is in its graph
    auto tied = std::make_unique<ReplayPtr>(replay);
    void *const context = tied.get();
    QCCL_TRY(gpu_->tie_to_graph(stream, end_replay, tied.release()));
    auto chain = std::ranges::find(chains_, capture, &Chain::capture);
    if (chain != chains_.end()) QCCL_TRY(chain->latest.front().hold(stream));
    QCCL_TRY(gpu_->call_host(stream, begin_replay, context));
    QCCL_TRY(gpu_->await_gate(stream, replay->gate, 1));
    QCCL_TRY(mark.set(stream));
    if (chain == chains_.end()) {
        if (chains_.size() == most_chains) chains_.pop_front();
        chain = chains_.insert(chains_.end(), {.capture = capture, .latest = {}});
    }
    chain->latest = std::move(latest);
    return {};
}

// The stream has passed the gate's last opening, for launches of one instantiated graph come one
// after the other. Those of one that is instantiated twice may not: they pass together, when the
// call has been made for each.
void GpuQueue::begin_replay(void *context) {
    const auto &replay = *static_cast<const ReplayPtr *>(context);
    const std::lock_guard lock(replay->mutex);
    if (!replay->queue) return set(replay->gate, 1);
    set(replay->gate, 0);
    if (replay->node.empty()) {
        replay->more++;
        return;
    }
    replay->node.front().replay = replay;
    replay->queue->push(replay->queue->arrived_replays_, replay->node);
}

void GpuQueue::end_replay(void *context) {
    const std::unique_ptr<ReplayPtr> tied(static_cast<ReplayPtr *>(context));
    Replay &replay = **tied;
    const std::lock_guard lock(replay.mutex);
    replay.has_graph = false;
    if (!replay.node.empty()) replay.give_gate_back();
}

void GpuQueue::Replay::give_gate_back() {
    if (queue) queue->gpu_->destroy_gate(gate);
    queue = nullptr;
    node.clear();
}

Result<GpuQueue::Marks> GpuQueue::take_mark() {
    Marks mark;
    {
        const std::lock_guard lock(mutex_);
        if (!spare_.empty()) {
            mark.splice(mark.begin(), spare_, spare_.begin());
            return mark;
        }
    }
    QCCL_TRY(OwnMark made, OwnMark::create(gpu_));
    mark.push_back(std::move(made));
    return mark;
}

void GpuQueue::recycle_passed() {
    while (!passages_.empty()) {
        const auto is_passed = passages_.front().is_passed();
        if (!is_passed || !*is_passed) return;
        const std::lock_guard lock(mutex_);
        spare_.splice(spare_.end(), passages_, passages_.begin());
    }
}

bool GpuQueue::is_idle() {
    const std::lock_guard lock(mutex_);
    return !is_busy();
}

void GpuQueue::await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_busy(); });
}

void GpuQueue::push(Items &queue, Items &item) {
    const std::lock_guard lock(mutex_);
    queue.splice(queue.end(), item);
    changed_.notify_all();
}

void GpuQueue::run() {
    // The system lets a sleep last 50 us longer unless the thread says otherwise, which is more
    // than a small call takes.
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

void GpuQueue::serve(Items &queue, const Done &arrived, std::unique_lock<std::mutex> &lock) {
    Items served;
    served.splice(served.begin(), queue, queue.begin());
    Item &item = served.front();
    is_serving_ = true;
    lock.unlock();
    if (item.work) item.work(arrived, item.captured);
    if (item.replay)
        take_back(served);
    else
        set(item.gate, item.opens);
    lock.lock();
    if (!served.empty()) spare_.splice(spare_.end(), item.arrival);
    is_serving_ = false;
    changed_.notify_all();
}

// The graph's next launch takes the node, which therefore comes back before the gate opens.
void GpuQueue::take_back(Items &served) {
    const ReplayPtr replay = std::move(served.front().replay);
    const std::lock_guard lock(replay->mutex);
    if (!replay->has_graph) return replay->give_gate_back();
    if (replay->queue && replay->more > 0) {
        replay->more--;
        served.front().replay = replay;
        return push(arrived_replays_, served);
    }
    if (replay->queue) replay->node.splice(replay->node.begin(), served);
    set(replay->gate, 1);
}

std::optional<Done> GpuQueue::await_arrival(std::unique_lock<std::mutex> &lock) {
    const OwnMark &arrival = queue_.front().arrival.front();
    ArrivalNaps naps(spin_);
    const auto begin = std::chrono::steady_clock::now();
    while (arrived_replays_.empty()) {
        lock.unlock();
        const bool is_over = is_over_();
        const auto is_passed = arrival.is_passed();
        const bool must_wait = !is_over && is_passed && !*is_passed;
        if (must_wait) pause(naps.next(std::chrono::steady_clock::now() - begin));
        lock.lock();
        if (!must_wait) return outcome(is_passed);
    }
    return std::nullopt;
}

} // namespace qccl
