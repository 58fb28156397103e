#include "api/gpu_queue.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

namespace qccl {

namespace {

using namespace std::chrono_literals;

// Between two looks at a stream that has not come yet.
constexpr std::chrono::nanoseconds shortest_nap = 5us, longest_nap = 50us;
// Once its gate is open, a stream that does not pass it is held up by something else.
constexpr std::chrono::nanoseconds longest_passage = 2s;

void set(uint32_t *gate, uint32_t word) {
    std::atomic_ref(*gate).store(word, std::memory_order_release);
}

} // namespace

Result<std::unique_ptr<GpuQueue>> GpuQueue::create(std::shared_ptr<Gpu> gpu,
                                                   std::optional<uint64_t> cpu,
                                                   std::function<bool()> is_over) {
    std::unique_ptr<GpuQueue> queue(new GpuQueue(std::move(gpu), std::move(is_over)));
    if (queue->gpu_->traits().has_gates) {
        QCCL_TRY(queue->gate_, queue->gpu_->create_gate());
    }
    QCCL_TRY(queue->thread_,
             QuietThread::start(stream_thread_name, [q = queue.get()] { q->run(); }));
    if (cpu) QCCL_TRY(queue->thread_.pin(*cpu));
    return queue;
}

GpuQueue::~GpuQueue() {
    for (Replay *const replay : replays_) {
        const std::lock_guard lock(replay->mutex);
        replay->queue = nullptr;
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
    const auto deadline = std::chrono::steady_clock::now() + longest_passage;
    for (const OwnMark &passage : passages_)
        for (;;) {
            const auto is_passed = passage.is_passed();
            if (!is_passed || *is_passed) break; // what has failed waits for nothing
            if (std::chrono::steady_clock::now() > deadline) return false;
            std::this_thread::sleep_for(longest_nap);
        }
    return true;
}

Done GpuQueue::check(GpuStream stream) const {
    const GpuTraits &traits = gpu_->traits();
    if (!traits.has_gates)
        return Error::make(Code::invalid_usage,
                           "stream: no stream of %s can wait for the host; QCCL_STREAM_SYNC is "
                           "possible",
                           traits.name.c_str());
    if (traits.can_capture) return {};
    QCCL_TRY(const bool is_capturing, gpu_->is_capturing(stream));
    if (!is_capturing) return {};
    return Error::make(Code::invalid_usage, "stream: calls on %s cannot be captured",
                       traits.name.c_str());
}

Done GpuQueue::enqueue(GpuStream stream, Work work) {
    QCCL_TRY(check(stream));
    QCCL_TRY(const bool is_capturing, gpu_->is_capturing(stream));
    if (is_capturing) return capture(stream, std::move(work));
    recycle_passed();
    Item item{.work = std::move(work), .arrival = {}, .gate = gate_, .opens = ++issued_};
    QCCL_TRY(item.arrival, take_mark());
    QCCL_TRY(item.arrival.set(stream));
    if (const Done gated = gate_stream(stream, item); !gated) {
        set(gate_, issued_); // whether or not it waits there
        return gated;
    }
    push(queue_, std::move(item));
    return {};
}

Done GpuQueue::gate_stream(GpuStream stream, const Item &item) {
    QCCL_TRY(OwnMark passage, take_mark());
    QCCL_TRY(gpu_->await_gate(stream, item.gate, item.opens));
    QCCL_TRY(passage.set(stream));
    passages_.push_back(std::move(passage));
    return {};
}

Done GpuQueue::capture(GpuStream stream, Work work) {
    auto replay = std::make_unique<Replay>();
    replay->queue = this;
    replay->work = std::move(work);
    QCCL_TRY(replay->gate, gpu_->create_gate());
    const Done captured = [&]() -> Done {
        QCCL_TRY(gpu_->call_host(stream, begin_replay, replay.get()));
        return gpu_->await_gate(stream, replay->gate, 1);
    }();
    // What a graph may hold already is never freed.
    replays_.push_back(replay.release());
    if (captured) return {};
    return Error::make(Code::invalid_usage, "stream: the call cannot be captured: %.200s",
                       captured.error().text);
}

// The stream has passed the gate's last opening, for replays of one graph come one after the other.
void GpuQueue::begin_replay(void *context) {
    auto *const replay = static_cast<Replay *>(context);
    set(replay->gate, 0);
    const std::lock_guard lock(replay->mutex);
    if (replay->queue)
        replay->queue->push(
            replay->queue->arrived_replays_,
            {.work = replay->work, .arrival = {}, .gate = replay->gate, .opens = 1});
    else
        set(replay->gate, 1);
}

Result<OwnMark> GpuQueue::take_mark() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return OwnMark::create(gpu_);
    OwnMark mark = std::move(spare_.back());
    spare_.pop_back();
    return mark;
}

void GpuQueue::recycle_passed() {
    while (!passages_.empty()) {
        const auto is_passed = passages_.front().is_passed();
        if (is_passed && !*is_passed) return;
        const std::lock_guard lock(mutex_);
        spare_.push_back(std::move(passages_.front()));
        passages_.pop_front();
    }
}

bool GpuQueue::is_idle() {
    const std::lock_guard lock(mutex_);
    return !has_work();
}

void GpuQueue::await_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !has_work(); });
}

void GpuQueue::push(std::deque<Item> &queue, Item item) {
    const std::lock_guard lock(mutex_);
    queue.push_back(std::move(item));
    changed_.notify_all();
}

void GpuQueue::run() {
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

void GpuQueue::serve(std::deque<Item> &queue, const Done &arrived,
                     std::unique_lock<std::mutex> &lock) {
    Item &item = queue.front(); // stays where it is while others are pushed
    lock.unlock();
    item.work(arrived);
    set(item.gate, item.opens);
    lock.lock();
    if (item.arrival.is_there()) spare_.push_back(std::move(item.arrival));
    queue.pop_front();
    changed_.notify_all();
}

std::optional<Done> GpuQueue::await_arrival(std::unique_lock<std::mutex> &lock) {
    const OwnMark &arrival = queue_.front().arrival;
    for (auto nap = shortest_nap; arrived_replays_.empty(); nap = std::min(2 * nap, longest_nap)) {
        lock.unlock();
        const bool is_over = is_over_();
        const auto is_passed = arrival.is_passed();
        const bool must_wait = !is_over && is_passed && !*is_passed;
        if (must_wait) std::this_thread::sleep_for(nap);
        lock.lock();
        if (!must_wait) return outcome(is_passed);
    }
    return std::nullopt;
}

} // namespace qccl
