// The GPU side of a rank's lanes: their streams, the launcher of each, and the tasks that a lane
// has not finished. The engine and the interpreter use it, on one thread at a time. Only drain()
// and the destructor block.
//
// launch_steps launches operations over a chunk, one after the other: the GPU's counterpart of
// run_tiles in ops.hpp. find_fold finds the operations of a run that one kernel launch can do, a
// sum over several sources; a sum that is only read by the step that stores or encodes it stays in
// registers. The task executor and the GPU fast path use launch_steps, on any thread. The functions
// compare addresses and never read what lies there; they do not wait for the GPU.
#pragma once

#include "device/device.hpp"
#include "device/kernel_launcher.hpp"
#include "engine/compile/ops.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace qccl {

class GpuLanes {
public:
    explicit GpuLanes(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
    GpuLanes(const GpuLanes &) = delete;
    // No launched work is running when this returns.
    ~GpuLanes() { drain(); }

    // Creates the streams, which lanes take in turn. A driver may let the creation of a stream wait
    // for streams that wait for calls, so this must not happen in a call. An error is the GPU's.
    Done open();
    // Creates lanes until there are at least `lanes`. An error is the GPU's.
    Done prepare(uint32_t lanes);

    KernelLauncher &launcher(uint32_t lane) { return lanes_[lane]->launcher; }
    // Returns true if the lane has an event left for one more task.
    bool has_room(uint32_t lane) const { return lanes_[lane]->under_way.size() < most_under_way; }
    // Starts `task`: all launches of the lane since the last start belong to it.
    Done start(uint32_t lane, uint32_t task);
    // Returns the lane's next finished task, in the order of their starts. Nothing if it still
    // runs, or if there is none. An error is the stream's.
    Result<std::optional<uint32_t>> take_done(uint32_t lane);
    // Bytes that the kernels of all lanes have moved so far.
    uint64_t moved_bytes() const;
    bool is_busy() const { return under_way_ != 0; }

    // Waits for all launched work, and forgets its tasks.
    void drain();

private:
    // Two keep a GPU busy. With the program's stream and that of its Gpu a rank has four, so that
    // eight ranks in threads have no more than the 32 queues of a GPU: a kernel that shares its
    // queue with a stream that waits for a call waits, too.
    static constexpr size_t streams_kept = 2;
    // Enough for the GPU to have its next task when one ends.
    static constexpr size_t most_under_way = 8;

    struct Lane {
        Lane(KernelLauncher::Launch launch, const MostBlocks &most_blocks)
            : launcher(launch, this, most_blocks) {}

        Gpu *gpu = nullptr;
        GpuStream stream = nullptr;
        std::vector<GpuEvent> events;   // task n of the lane has event n mod most_under_way
        std::deque<uint32_t> under_way; // tasks, oldest first
        uint64_t started = 0, done = 0;
        KernelLauncher launcher;
    };
    static Done launch(void *lane, KernelId kernel, unsigned blocks, const Batch &batch);

    std::shared_ptr<Gpu> gpu_;
    std::vector<OwnStream> streams_; // lane n has stream n mod streams_kept
    std::vector<std::unique_ptr<Lane>> lanes_;
    uint64_t under_way_ = 0;
};

// ---- Folds

struct FoundFold {
    std::array<const TileStep *, KernelLauncher::most_sources> sources{};
    size_t source_count = 0;
    bool divides = false;
    const TileStep *sink = nullptr; // null: the sum stays in its accumulator
    size_t steps = 0;               // number of steps that the fold replaces
};

// Returns the fold at the front of `steps`. Nothing if there is none, or if one launch would gain
// nothing. Changes later steps that read the sum, so that they read the sink's output.
std::optional<FoundFold> find_fold(const TileContext &context, std::span<TileStep> steps);

// Returns the range that covers the step's whole chunk.
ChunkRange chunk_of(const TileContext &context, const TileStep &step);

// ---- Calls of the launcher

// Starts all steps, each over the whole chunk, in as few launches as possible. The steps must
// have no scratch, and are changed. An error is the GPU's.
Done launch_steps(KernelLauncher &launcher, const TileContext &context, std::span<TileStep> steps);

} // namespace qccl
