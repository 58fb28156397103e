// A lane (PipelineLane) holds one instance of a program in flight: the tasks that it has done, and
// the messages in its wire slots. inspect checks that a received chunk is the chunk that the
// schedule expects; the engine reads no chunk before this check. The interpreter and the task
// executor use a lane on one thread; inspect is a pure function, for any thread. Nothing here
// blocks.
//
// StoreChoice chooses how chunks that peers read are stored: through the cache, or past it
// (streaming stores). A store through the cache has to take the line from the cache of a peer that
// has read it. That costs little between cores that share a last-level cache, and much between
// others (four times as much as the way past it, between two cores of a Zen 4). On a virtual
// machine the cost changes by the second, so the way that is not in use is tried now and then. Both
// ways store the same bytes. The interpreter uses it, on one thread.
#pragma once

#include "base/result.hpp"
#include "codec/chunk.hpp"
#include "engine/compile/program.hpp"
#include "schedule/shape.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace qccl {

// ---- Received chunks

struct ExpectedChunk {
    const Codec *codec = nullptr;
    DataType type = DataType::float32;
    uint64_t count = 0;
    uint64_t index = 0; // of the first element, in the caller's tensor
    uint32_t from = 0;  // the rank that sent it
    // The chunk must carry a valid CRC32C.
    bool has_checksum = false;
};

// A payload that does not lie behind its header. `bytes` is the memory that may be read from there
// on, perhaps more than the payload.
struct ZeroCopyPayload {
    std::span<const std::byte> bytes{};
    bool is_out_of_sight = false; // the host cannot read it
};

// Checks the chunk in `bytes`, and its payload in `zero_copy` if that is set. The error
// (damaged_data) names the sending rank and what differs.
Done inspect(std::span<const std::byte> bytes, const ExpectedChunk &expected,
             const ZeroCopyPayload &zero_copy = {});
// Checks a packed chunk in the same way, and unpacks it to `chunk`, which has space for
// encoded_bytes. After an error `chunk` is undefined.
Done inspect_packed(const Kernels &kernels, std::span<const std::byte> bytes,
                    const ExpectedChunk &expected, std::byte *chunk, PackScratch &scratch);

// ---- Lanes

// The content of a wire slot: a received message, or what this rank has encoded.
struct HeldView {
    MessageView view;
    // Tasks of this rank that still have to read it. Counted for received messages and for zero
    // copy.
    uint32_t readers = 0;
    // Header and payload as kernels write and read them, if the message is packed; null: it is not.
    std::byte *unpacked = nullptr;

    bool is_zero_copy() const { return view.zero_copy.data != nullptr; }
    // Whether its zero-copy bytes and the range have bytes in common.
    bool shares_bytes_with(std::span<const std::byte> range) const {
        return is_zero_copy() && range.data() < view.zero_copy.data + view.zero_copy.bytes &&
               view.zero_copy.data < range.data() + range.size();
    }
    const std::byte *payload() const {
        if (unpacked) return unpacked + header_bytes;
        return is_zero_copy() ? view.zero_copy.data : view.data + header_bytes;
    }
};

class PipelineLane {
public:
    // The interpreter looks only at the first unfinished tasks: enough to overlap, and their flags
    // fit one word.
    static constexpr uint32_t window = 64;

    // Starts over with an instance of the program. `number` is the lane's; `program` must outlive
    // the instance.
    void begin(const Program &program, uint32_t number, uint64_t instance);

    uint64_t instance() const { return instance_; }
    uint32_t number() const { return number_; } // of the lane
    bool is_done() const { return base_ == program_->tasks.size(); }

    // The window holds the tasks base() to base() + in_window() - 1, in order.
    uint32_t base() const { return base_; }
    uint32_t in_window() const {
        return std::min(window, static_cast<uint32_t>(program_->tasks.size()) - base_);
    }
    // Returns true if the task waits for no other, and is neither done nor started.
    bool is_ready(uint32_t task) const {
        return waits_[task] == 0 && ((done_ | started_) >> (task - base_) & 1) == 0;
    }
    // Marks a task of the window as done.
    void finish(uint32_t task);
    // Marks work as started on a device, which does its work in order: other work that depends on
    // it may start before it is done. finish_started() then releases the sends and receives that
    // wait for it.
    void start(uint32_t task);
    void finish_started(uint32_t task);
    // Moves the window past the tasks that are done.
    void advance();

    HeldView &wire(uint32_t slot) { return wires_[slot]; }
    std::span<const HeldView> own_wires() const {
        return std::span(wires_).first(program_->schedule.outbox);
    }

private:
    const Program *program_ = nullptr;
    uint64_t instance_ = 0;
    uint64_t done_ = 0, started_ = 0; // of the window; done tasks stay started too
    uint32_t number_ = 0;
    uint32_t base_ = 0;
    std::vector<uint32_t> waits_;
    std::vector<HeldView> wires_;
};

inline void PipelineLane::finish(uint32_t task) {
    done_ |= uint64_t{1} << (task - base_);
    const Task &t = program_->tasks[task];
    for (uint32_t i = t.next_first; i < t.next_last; i++) waits_[program_->next[i]]--;
}

inline void PipelineLane::advance() {
    const auto passed = static_cast<uint32_t>(std::countr_one(done_));
    base_ += passed;
    done_ = passed == window ? 0 : done_ >> passed;
    started_ = passed == window ? 0 : started_ >> passed;
}

// ---- How chunks are stored

class StoreChoice {
public:
    // Returns true if the next task that encodes should store past the cache.
    bool streams() const { return prefers_streams_ != is_trial(); }

    // Reports the cost of that task: per element, in any unit.
    void took(double cost) {
        const bool was_trial = is_trial();
        position_++;
        // The first tasks of a trial meet cache lines as the other way has left them, so they do
        // not count. Of the other tasks the cheapest counts: it was not interrupted, and such tasks
        // are of the same kind in both ways.
        if (was_trial && position_ > trial / 2) other_ = std::min(other_, cost);
        if (!was_trial && position_ > cycle_ - trial / 2) own_ = std::min(own_, cost);
        if (position_ == trial) decide();
        if (position_ == cycle_) position_ = 0;
    }

private:
    // In tasks. Each cycle begins with a trial of the other way. At the worst ratio that was seen,
    // 5, trials cost 4 % of the time in the long run.
    static constexpr uint32_t trial = 16, shortest_cycle = 64, longest_cycle = 2048;
    static constexpr double unknown = std::numeric_limits<double>::infinity();

    bool is_trial() const { return position_ < trial; }
    void decide() {
        const bool changes = other_ < own_;
        prefers_streams_ = prefers_streams_ != changes;
        cycle_ = changes ? shortest_cycle : std::min(2 * cycle_, longest_cycle);
        own_ = other_ = unknown;
    }

    double own_ = unknown, other_ = unknown;
    uint32_t position_ = trial; // in the cycle; the first cycle has nothing to compare with
    uint32_t cycle_ = shortest_cycle;
    bool prefers_streams_ = true;
};

// One choice for each order of size, lossless or not: such calls work on segments of one size.
class StoreChoices {
public:
    StoreChoice &of(uint64_t bytes, bool is_lossless) {
        return choices_[static_cast<size_t>(std::bit_width(bytes)) * 2 + (is_lossless ? 1 : 0)];
    }

private:
    std::array<StoreChoice, size_t{2} * 65> choices_{};
};

} // namespace qccl
