// Creates the lanes' streams and events, and follows tasks by their events.
#include "engine/gpu/gpu_lanes.hpp"

namespace qccl {

Done GpuLanes::open() {
    while (streams_.size() < streams_kept) {
        QCCL_TRY(OwnStream stream, OwnStream::create(gpu_, StreamPriority::greatest));
        streams_.push_back(std::move(stream));
    }
    return {};
}

Done GpuLanes::prepare(uint32_t lanes) {
    QCCL_TRY(open());
    while (lanes_.size() < lanes) {
        auto lane =
            std::make_unique<Lane>(launch, MostBlocks::of_gpu(gpu_->traits().multiprocessors));
        lane->gpu = gpu_.get();
        lane->stream = streams_[lanes_.size() % streams_kept].get();
        while (lane->events.size() < most_under_way) {
            QCCL_TRY(GpuEvent event, GpuEvent::create(gpu_));
            lane->events.push_back(std::move(event));
        }
        lanes_.push_back(std::move(lane));
    }
    return {};
}

Done GpuLanes::launch(void *lane, KernelId kernel, unsigned blocks, const Batch &batch) {
    const Lane &own = *static_cast<Lane *>(lane);
    return own.gpu->launch(own.stream, kernel, blocks, batch);
}

Done GpuLanes::start(uint32_t number, uint32_t task) {
    Lane &lane = *lanes_[number];
    QCCL_TRY(lane.events[lane.started % most_under_way].set(lane.stream));
    lane.started++;
    lane.under_way.push_back(task);
    under_way_++;
    return {};
}

Result<std::optional<uint32_t>> GpuLanes::take_done(uint32_t number) {
    Lane &lane = *lanes_[number];
    if (lane.under_way.empty()) return std::optional<uint32_t>();
    QCCL_TRY(const bool has_passed, lane.events[lane.done % most_under_way].has_passed());
    if (!has_passed) return std::optional<uint32_t>();
    const uint32_t task = lane.under_way.front();
    lane.under_way.pop_front();
    lane.done++;
    under_way_--;
    return std::optional(task);
}

uint64_t GpuLanes::moved_bytes() const {
    uint64_t bytes = 0;
    for (const auto &lane : lanes_) bytes += lane->launcher.moved_bytes();
    return bytes;
}

// Errors of the streams are ignored: the caller has an error already, or there is no caller to
// tell.
void GpuLanes::drain() {
    for (const auto &lane : lanes_) {
        (void)gpu_->synchronize(lane->stream);
        lane->done += lane->under_way.size();
        lane->under_way.clear();
    }
    under_way_ = 0;
}

} // namespace qccl
