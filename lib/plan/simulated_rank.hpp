// One rank in the simulator: finds the task that can be done next, as the engine's interpreter
// does. Tasks of the oldest instance come first, in the schedule's order, no further ahead than the
// engine looks. The rank makes calls in a row, each after the one before. The object has no clock.
// Used by the simulator alone; one thread.
#pragma once

#include "plan/rank_program.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace qccl {

// Where encoded bytes lie: in a slot of a rank's outbox, counted over all lanes. Without a rank
// they lie in the receiver's own memory, which no rank waits for.
struct WireOrigin {
    static constexpr uint32_t nowhere = ~uint32_t{0};
    uint32_t rank = nowhere, slot = 0;
};

class SimulatedRank {
public:
    // As in the engine's PipelineSlot.
    static constexpr uint32_t window = 64;

    struct Choice {
        uint32_t lane = 0, task = 0;
    };

    // `number`: the rank's own, which origins contain. `most_lanes`: the most lanes that any rank
    // has. The program has to outlive the object. No call has begun yet.
    SimulatedRank(uint32_t number, const RankProgram &program, uint64_t instances, uint32_t calls,
                  uint32_t most_lanes);

    // Begins the next call. The one before it, if any, has to have ended.
    void begin_call();
    // Whether the call's tasks are done and no peer still reads the caller's buffers.
    bool has_ended() const { return lanes_left_ == 0 && (!program_.lends || held_ == 0); }
    // Returns the number of the last call that has begun.
    uint32_t call() const { return call_; }
    bool has_more_calls() const { return call_ + 1 != calls_; }

    // Returns a task that can be done now, and marks the own slots that it encodes into as in use.
    // The caller has to finish the task. Returns nothing if no task can be done.
    std::optional<Choice> choose();
    // Marks the task as done. The bytes of a receive lie where arrive() said.
    void finish(Choice done);
    bool is_over(uint32_t lane) const { return lanes_[lane].is_over; }
    uint64_t instance(uint32_t lane) const { return lanes_[lane].instance; }
    const RankProgram &program() const { return program_; }

    // Says that the bytes for a receive have arrived.
    struct MessageArrival {
        uint32_t call = 0, task = 0;
        uint64_t instance = 0;
        WireOrigin origin;
    };
    void arrive(const MessageArrival &arrival);
    WireOrigin origin(uint32_t lane, uint32_t wire) const {
        return origins_[size_t{lane} * program_.wires + wire];
    }
    void hold(uint32_t slot) { add_hold(slot); }
    // Returns true if no rank reads the slot any more, and a task or the call's end may have waited
    // for that.
    bool release(uint32_t slot);

private:
    struct Lane {
        uint64_t instance = 0;
        uint32_t oldest = 0; // first task that is not done
        bool is_over = false;
        std::vector<uint32_t> ready;  // a heap, the first task on top
        std::vector<uint32_t> parked; // tasks that encode into slots which are still read
        std::vector<uint32_t> waits;
        std::vector<bool> is_done;
    };

    void begin(Lane &lane, uint64_t instance);
    void make_ready(Lane &lane, uint32_t task);
    bool has_room(uint32_t lane, uint32_t task) const;
    void take_slots(uint32_t lane, uint32_t task);
    // Returns the lane's first ready task within the window. Parks tasks that lack a slot.
    std::optional<uint32_t> first_of(uint32_t lane);
    void add_hold(uint32_t slot) { held_ += holds_[slot]++ == 0; }
    size_t receive(uint32_t call, uint32_t task) const {
        return size_t{call} * program_.receives + program_.tasks[task].receive;
    }
    size_t arrival(uint32_t call, uint32_t task, uint64_t instance) const {
        return receive(call, task) * instances_ + instance;
    }
    WireOrigin &arrived(uint32_t call, uint32_t task, uint64_t instance) {
        return arrived_[receive(call, task) * most_lanes_ + instance % most_lanes_];
    }

    const uint32_t number_;
    const RankProgram &program_;
    const uint64_t instances_;
    const uint32_t calls_, most_lanes_;
    uint32_t call_ = ~uint32_t{0}; // none
    uint32_t lanes_left_ = 0;
    uint32_t held_ = 0; // slots that are still needed
    std::vector<Lane> lanes_;
    std::vector<bool> has_arrived_;
    // Indexed by call, receive and instance modulo `most_lanes_`: a sender with more lanes than
    // this rank may be that many instances ahead.
    std::vector<WireOrigin> arrived_;
    std::vector<WireOrigin> origins_; // by lane and wire
    std::vector<uint32_t> holds_;     // by lane and own slot: how many readers need the slot
};

} // namespace qccl
