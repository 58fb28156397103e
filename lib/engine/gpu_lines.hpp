// Small calls on GPUs that reach each other: the twin of bound.hpp, with lines in the GPUs' memory.
// This rank's writes, the GPUs' meetings and its reads are launched one behind the other; only
// where some rank has come too late for the others' GPUs does the host wait for it. Knows no
// mailboxes and no segments.
#pragma once

#include "device/gpu_device.hpp"
#include "engine/bound.hpp"
#include "engine/cut.hpp"
#include "engine/gpu_lanes.hpp"
#include "engine/meeting_patience.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace qccl {

class StepTrace;

// Memory of each rank's GPU, as this rank reaches it: two lines, of which exchanges take turns, and
// for each of them a word for each rank, which tells this one that it has written. Zeroed before
// the first exchange.
struct DeviceLines {
    std::vector<std::byte *> by_rank;
    size_t line_bytes = 0; // a multiple of gpu_alignment

    static size_t words_bytes(uint32_t ranks);
    static size_t bytes(uint32_t ranks, size_t line_bytes) {
        return words_bytes(ranks) + 2 * line_bytes;
    }
};

// So many ranks meet at most.
inline constexpr uint32_t most_meeting_ranks = Launches::Meeting::most_others + 1;

class GpuLines {
public:
    static constexpr size_t most_exchanges = gpu_eager_exchanges; // of a call

    static Result<std::unique_ptr<GpuLines>> create(const Device &device, const DeviceLines &lines);

    // A call of a bound program, on the first of the lanes, which are idle; `call.sum` is memory of
    // the GPU, and `call.lines` is not looked at. `trace` may be null.
    Done run(Transport &transport, GpuLanes &lanes, const Program &program, const BoundCall &call,
             StepTrace *trace);

private:
    explicit GpuLines(const DeviceLines &lines) : lines_(lines) {}
    Done launch_from(size_t stage, Launches &launches, const Program &program,
                     const BoundCall &call);
    Done launch(size_t stage, Launches &launches, const Program &program, const BoundCall &call);
    Done meet(size_t exchange, Launches &launches, uint32_t rank);
    bool has_met(size_t exchange) const;
    uint64_t *met(size_t exchange) const {
        return reinterpret_cast<uint64_t *>(met_.data()) + exchange;
    }
    uint64_t *met_on_host(size_t exchange) const {
        return reinterpret_cast<uint64_t *>(met_on_host_.data()) + exchange;
    }
    // Which of the lines, and of the words, has its turn.
    size_t turn(size_t exchange) const { return (exchanges_ + exchange) % 2; }
    std::byte *line(uint32_t rank, size_t exchange) const;
    uint64_t *word(uint32_t owner, size_t exchange, uint32_t teller) const {
        return reinterpret_cast<uint64_t *>(lines_.by_rank[owner]) +
               turn(exchange) * lines_.by_rank.size() + teller;
    }

    const DeviceLines lines_;
    DeviceMemory met_;
    PinnedMemory met_on_host_;
    MeetingPatience patience_;
    uint64_t exchanges_ = 0; // of the calls before; equal on all ranks
    // What the ranks tell each other in the call's exchanges.
    std::array<uint64_t, most_exchanges> values_{};
};

} // namespace qccl
