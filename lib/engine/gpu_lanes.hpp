// What a rank's lanes have of its GPU: a stream each, the launches that go into it, and which tasks
// are on their way. Knows no transport and no operations.
#pragma once

#include "device/gpu_device.hpp"
#include "kernels/launches.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

class GpuLanes {
public:
    explicit GpuLanes(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
    GpuLanes(const GpuLanes &) = delete;
    // Nothing that was launched goes on when this returns.
    ~GpuLanes() { drain(); }

    // Makes sure of so many lanes.
    Done prepare(uint32_t lanes);

    Launches &launches(uint32_t lane) { return lanes_[lane]->launches; }
    // Whether the lane has a mark left for one more task.
    bool has_room(uint32_t lane) const { return lanes_[lane]->under_way.size() < most_under_way; }
    // What the lane has launched since the last task belongs to this one.
    Done start(uint32_t lane, uint32_t task);
    // The lane's next task that is through, in the order of their starts; none: it is not yet.
    Result<std::optional<uint32_t>> take_done(uint32_t lane);
    // By all lanes' kernels, so far.
    uint64_t moved_bytes() const;
    bool is_busy() const { return under_way_ != 0; }

    // Waits for all that has been launched, and forgets it.
    void drain();

private:
    // Enough for the GPU to have its next task when one ends.
    static constexpr size_t most_under_way = 8;

    struct Lane {
        Lane(Launches::Launch launch, unsigned most_blocks) : launches(launch, this, most_blocks) {}

        Gpu *gpu = nullptr;
        OwnStream stream;
        std::vector<OwnMark> marks;     // task n of the lane has mark n mod most_under_way
        std::deque<uint32_t> under_way; // tasks, the oldest first
        uint64_t started = 0, done = 0;
        Launches launches;
    };
    static Done launch(void *lane, KernelId kernel, unsigned blocks, const Batch &batch);

    std::shared_ptr<Gpu> gpu_;
    std::vector<std::unique_ptr<Lane>> lanes_;
    uint64_t under_way_ = 0;
};

} // namespace qccl
