// There are as many threads as streams have had work at once, so that a stream that waits does not
// keep another from being served. Captures record the work of capturing streams and make graphs of
// it.
#include "kernels/runtime/emulated/emulated_streams.hpp"

#include <algorithm>

namespace qccl::emulated {

// ---- Workers

static bool can_begin(const Work &work) {
    return std::ranges::all_of(work.after,
                               [](const Dependency &before) { return before.point->is_done; });
}

// Returns the failure that the work takes over from a stream that it waits for.
static Outcome inherited(const Work &work) {
    for (const Dependency &before : work.after)
        if (before.shares_failure && !before.point->outcome.is_ok()) return before.point->outcome;
    return {};
}

Outcome Workers::prepare(size_t streams) {
    while (threads_.size() < served_ + streams) {
        auto thread = ServiceThread::start("emulated-gpu", [this] { work_for_ever(); });
        if (!thread) return thread.error();
        threads_.push_back(std::move(*thread));
    }
    return {};
}

Outcome Workers::put(const StreamPtr &stream, Work work) {
    work.point = std::make_shared<Point>();
    if (!stream->is_served) {
        if (!work.run && can_begin(work)) {
            stream->last = work.point;
            come_by(*stream, work, inherited(work));
            return {};
        }
        if (Outcome outcome = prepare(1); !outcome.is_ok()) return outcome;
        stream->is_served = true;
        served_++;
        ready_.push_back(stream);
        has_ready_.notify_one();
    }
    stream->last = work.point;
    stream->work.push_back(std::move(work));
    return {};
}

Outcome Workers::wait(Lock &lock, const PointPtr &point) {
    point->done.wait(lock, [&] { return point->is_done; });
    return point->outcome;
}

void Workers::work_for_ever() {
    Lock lock(mutex_);
    while (true) {
        has_ready_.wait(lock, [this] { return !ready_.empty(); });
        const StreamPtr stream = std::move(ready_.front());
        ready_.pop_front();
        serve(stream, lock);
    }
}

void Workers::serve(const StreamPtr &stream, Lock &lock) {
    while (!stream->work.empty()) {
        for (const Dependency &before : stream->work.front().after)
            if (!before.point->is_done) {
                before.point->waiting.push_back(stream);
                return;
            }
        Work work = std::move(stream->work.front());
        stream->work.pop_front();
        Outcome outcome = inherited(work);
        if (stream->failure.is_ok() && outcome.is_ok() && work.run)
            outcome = run(std::move(work.run), lock);
        come_by(*stream, work, outcome);
    }
    stream->is_served = false;
    served_--;
}

Outcome Workers::run(std::function<Outcome()> body, Lock &lock) {
    if (fails_in_ > 0 && --fails_in_ == 0) return {failure_, "this work was to fail"};
    lock.unlock();
    Outcome outcome = body();
    body = nullptr; // destroys what the work holds before others learn that the work is done
    lock.lock();
    return outcome;
}

void Workers::come_by(Stream &stream, const Work &work, const Outcome &outcome) {
    if (stream.failure.is_ok()) stream.failure = outcome;
    Point &point = *work.point;
    point.is_done = true;
    point.outcome = stream.failure;
    point.done.notify_all();
    for (StreamPtr &waiting : point.waiting) {
        ready_.push_back(std::move(waiting));
        has_ready_.notify_one();
    }
    point.waiting.clear();
}

// ---- Captures

void Capture::join(const Stream *stream, const Tips &tips) {
    Lane &lane =
        lanes_.try_emplace(stream, Lane{.number = lanes_.size(), .tips = {}}).first->second;
    for (const size_t tip : tips)
        if (std::ranges::find(lane.tips, tip) == lane.tips.end()) lane.tips.push_back(tip);
}

void Capture::add(const Stream *stream, std::function<Outcome()> run) {
    Lane &lane = lanes_.at(stream);
    nodes_.push_back({.run = std::move(run), .after = lane.tips, .lane = lane.number});
    lane.tips = {nodes_.size() - 1};
}

bool Capture::forbids(qcclEmulatedCaptureMode_t own) const {
    if (own == qcclEmulatedCaptureModeRelaxed || mode_ == qcclEmulatedCaptureModeRelaxed)
        return false;
    if (thread_ == std::this_thread::get_id()) return true;
    return own == qcclEmulatedCaptureModeGlobal && mode_ == qcclEmulatedCaptureModeGlobal;
}

Outcome Capture::check_end(const Stream *stream) const {
    if (stream != origin_) return qcclEmulatedErrorStreamCaptureUnmatched;
    if (mode_ != qcclEmulatedCaptureModeRelaxed && thread_ != std::this_thread::get_id())
        return qcclEmulatedErrorStreamCaptureWrongThread;
    return {};
}

Outcome Capture::finish(Graph &graph) {
    if (is_spoilt_) return qcclEmulatedErrorStreamCaptureInvalidated;
    std::vector<bool> leads_back(nodes_.size(), false);
    for (const size_t tip : lanes_.at(origin_).tips) leads_back[tip] = true;
    for (size_t i = nodes_.size(); i-- > 0;) {
        if (!leads_back[i]) return qcclEmulatedErrorStreamCaptureUnjoined;
        for (const size_t before : nodes_[i].after) leads_back[before] = true;
    }
    graph.nodes = nodes_;
    graph.objects = take_objects();
    graph.lanes = lanes_.size();
    return {};
}

} // namespace qccl::emulated
