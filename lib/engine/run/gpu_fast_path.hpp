// The fast path for small calls on GPUs that reach each other's memory: fast_path.hpp with eager
// slots in GPU memory. This rank's writes, a barrier between the GPUs and this rank's reads are
// launched in one go. The host waits for peers only if some rank comes too late for the barrier.
// SpinBudget decides how long a GPU waits for the others in a barrier. One thread at a time; a call
// blocks in the transport.
#pragma once

#include "device/device.hpp"
#include "engine/compile/fast_path.hpp"
#include "engine/compile/translate.hpp"
#include "engine/gpu/gpu_lanes.hpp"
#include "transport/transport.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

// ---- Spin budget

// A GPU that several processes share serves them in turn, so such processes never meet in a
// barrier, however long they wait. After a few misses the GPUs only look once whether the others
// happen to be there; now and then they wait again.
class SpinBudget {
public:
    // A look takes a good part of a microsecond. So many looks cover the time by which ranks that
    // call together are apart. More would be wrong, because the GPU may be the others', too.
    static constexpr uint64_t most_looks = 500;

    // Returns how many times the next barrier may look for the others.
    uint64_t looks() const {
        return misses_ < misses_in_a_row || misses_ % misses_between == 0 ? most_looks : 1;
    }
    // Records whether the last barrier succeeded.
    void learn(bool has_met) { misses_ = has_met ? 0 : misses_ + 1; }

private:
    static constexpr uint64_t misses_in_a_row = 4, misses_between = 64;
    uint64_t misses_ = 0;
};

// ---- Fast path

class StepTrace;
struct FastPathCall;

// Memory of each rank's GPU, as this rank reaches it: two eager slots, which exchanges use in turn,
// and for each slot one word for each rank, in which that rank says that it has written. Zeroed
// before the first exchange.
struct DeviceEagerSlots {
    std::vector<std::byte *> by_rank;
    size_t eager_slot_bytes = 0; // a multiple of gpu_alignment

    static size_t words_bytes(uint32_t ranks);
    static size_t bytes(uint32_t ranks, size_t eager_slot_bytes) {
        return words_bytes(ranks) + 2 * eager_slot_bytes;
    }
};

// The most ranks that a GPU barrier supports.
inline constexpr uint32_t most_barrier_ranks = KernelLauncher::Barrier::most_others + 1;

class GpuFastPath {
public:
    static constexpr size_t most_exchanges = gpu_eager_exchanges; // per call

    // Allocates the words that say whether a barrier has succeeded. An error is the GPU's.
    static Result<std::unique_ptr<GpuFastPath>> create(const Device &device,
                                                       const DeviceEagerSlots &slots);

    // Runs a call of a fast-path program on lane 0, which must be idle. `call.sum` is GPU memory;
    // `trace` may be null. An error is the GPU's or the transport's.
    Done run(Transport &transport, GpuLanes &lanes, const Program &program,
             const FastPathCall &call, StepTrace *trace);

private:
    explicit GpuFastPath(const DeviceEagerSlots &slots) : slots_(slots) {}
    Done launch_from(size_t stage, KernelLauncher &launcher, const Program &program,
                     const FastPathCall &call);
    Done launch(size_t stage, KernelLauncher &launcher, const Program &program,
                const FastPathCall &call);
    // Returns the step of an operation of `stage`, on a chunk whose first element is `first_index`.
    TileStep step_of(const EagerOp &op, size_t stage, uint64_t first_index, const Program &program,
                     const FastPathCall &call) const;
    // Returns where an operand lies, if it lies in an eager slot: in that of `exchange`.
    std::byte *address(const EagerOperand &place, size_t exchange, const Program &program,
                       const FastPathCall &call) const;
    Done launch_barrier(size_t exchange, KernelLauncher &launcher, uint32_t rank);
    bool has_passed_barrier(size_t exchange) const;
    uint64_t *met(size_t exchange) const {
        return reinterpret_cast<uint64_t *>(met_.data()) + exchange;
    }
    uint64_t *met_on_host(size_t exchange) const {
        return reinterpret_cast<uint64_t *>(met_on_host_.data()) + exchange;
    }
    // Which of the two eager slots, and which set of words, the exchange uses.
    size_t turn(size_t exchange) const { return (exchanges_ + exchange) % 2; }
    std::byte *eager_slot(uint32_t rank, size_t exchange) const;
    uint64_t *word(uint32_t owner, size_t exchange, uint32_t writer) const {
        return reinterpret_cast<uint64_t *>(slots_.by_rank[owner]) +
               turn(exchange) * slots_.by_rank.size() + writer;
    }

    const DeviceEagerSlots slots_;
    DeviceMemory met_;
    PinnedMemory met_on_host_;
    SpinBudget spin_budget_;
    uint64_t exchanges_ = 0; // exchanges of earlier calls; equal on all ranks
    // The barrier values of the call's exchanges.
    std::array<uint64_t, most_exchanges> values_{};
};

} // namespace qccl
