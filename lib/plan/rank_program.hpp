// What a rank does in a simulated call, without bytes: its tasks with their times and lengths,
// which run in lanes as in the engine. Peers are numbered by the rank's own first use of them, so
// that ranks that do the same share one program.
//
// SimulatedRank runs a program: it finds the task that can be done next, as the engine's
// interpreter does. Tasks of the oldest instance come first, in the schedule's order, no further
// ahead than the engine looks. The rank makes calls in a row, each after the one before. The object
// has no clock.
//
// write_goal() writes a call as GOAL text, the schedules that LogGOPSim and ATLAHS simulate: for
// each rank its sends, receives and computing (ns), and the dependencies between them.
//
// Used by the simulator, by the counter of link bytes and by qccl-perf simulate. Pure; any thread,
// but one thread for each SimulatedRank.
#pragma once

#include "base/result.hpp"
#include "plan/cost.hpp"
#include "schedule/lower.hpp"
#include "schedule/shape.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// ---- Program of one rank

// The speeds of one core, in bytes of unencoded values a nanosecond.
struct ComputeSpeeds {
    struct Coding {
        double encode = 10, decode = 10, decode_add = 10;
    };
    double copy = 10; // also for what adding reads
    Coding outer, inner;
    // The speed of each access to memory that outlives a task. A task works on tiles in the nearest
    // cache.
    double memory = 1e30;
    // The part of the fabric's cost for each byte of a message between hosts that counts in this
    // call.
    double network_byte_share = 1;
    double call_ns = 0;  // time of a call before its first step
    double chunk_ns = 0; // time of each chunk that is encoded, decoded or added, beside its values
};

struct SimulatedCall {
    Problem problem;
    Algorithm algorithm;
    ShapeLimits limits; // by which the engine cuts the call
    ComputeSpeeds speeds;
    // Lossless calls on vectors of at least so many bytes let peers read inputs and results in
    // place, as in the engine: what is sent is not copied for the peers.
    uint64_t zero_copy_bytes = uint64_t{16} << 10;
    EagerSlots eager = {};
};

// How a call is cut, and how long its messages are. Built once for all ranks.
class CallGeometry {
public:
    CallGeometry() = default; // without chunks
    // `outbox` and `chunks`: as in the schedules; `rounds`: all chunks count as the longest. An
    // error says what does not fit.
    static Result<CallGeometry> create(const SimulatedCall &call, uint32_t chunks, uint32_t outbox,
                                       bool rounds);

    const Geometry &geometry() const { return geometry_; }
    uint64_t instances() const { return geometry_.instances; }
    // Whether the call's values go through eager slots.
    bool is_eager() const { return is_eager_; }
    // Returns a number that is the same for chunks of equal length.
    uint32_t length_of(uint32_t chunk) const { return length_of_[chunk]; }
    // Return the elements that an instance works on, of a chunk of this length, and their encoded
    // bytes.
    uint64_t count(uint32_t length, uint64_t instance) const;
    uint64_t bytes(uint32_t length, uint64_t instance, bool is_inner) const;
    // Returns the bytes of all instances.
    uint64_t all_bytes(uint32_t length, bool is_inner) const;
    // Returns the lanes of a rank that receives into `received` wire slots from other hosts at a
    // time.
    uint32_t lanes_for(uint32_t received) const;

private:
    struct Length {
        uint64_t count = 0;
        uint64_t full = 0;                               // instances of a whole segment
        uint64_t full_bytes[2] = {}, rest_bytes[2] = {}; // outer, inner
    };

    Geometry geometry_;
    ShapeLimits limits_;
    bool has_hosts_ = false, is_eager_ = false;
    std::vector<Length> lengths_;
    std::vector<uint32_t> length_of_; // of each chunk
    uint64_t empty_bytes_ = 0;
};

struct RankProgram {
    // One step of a task that computes.
    struct ComputeStep {
        Verb verb = Verb::copy;
        double ns_per_value = 0;
    };
    struct SimulatedTask {
        Verb verb = Verb::copy; // of its first step: a send, a receive, or computing
        bool is_inner = false;
        uint32_t place_in_series = 0; // send, receive: see schedule/message_series
        uint32_t peer = 0;            // send, receive: its number among the rank's peers
        uint32_t ordinal = 0;         // of the message
        uint32_t wire = 0;            // send, receive: the wire slot
        uint32_t length = 0;          // of its chunk, see CallGeometry
        uint32_t receive = 0;         // receive: its number among the receives
        double ns_per_value = 0, chunk_ns = 0;
        uint32_t pieces_first = 0, pieces_last = 0;
        uint32_t fills_first = 0, fills_last = 0; // in `slots`: own slots that it encodes into
        uint32_t releases_first = 0, releases_last = 0; // in `slots`: wire slots it reads last
    };

    TaskGraph graph; // of the joined, lowered schedule
    std::vector<SimulatedTask> tasks;
    std::vector<ComputeStep> pieces;
    std::vector<uint32_t> slots;
    uint32_t outbox = 0, wires = 0, receives = 0;
    uint32_t lanes = 1;
    // Peers read the caller's buffers in place, so the call ends when they have done so.
    bool has_zero_copy = false;
    std::vector<uint32_t> receives_of; // receive tasks, by peer and then by ordinal
    std::vector<uint32_t> first_of;    // index of each peer in receives_of, and the end

    uint32_t receive_task(uint32_t peer, uint32_t ordinal) const {
        return receives_of[first_of[peer] + ordinal];
    }
};

// Makes the program of the rank whose schedule is `author`. `number_of` gives a rank's number among
// the rank's `peers` peers.
Result<RankProgram> make_program(const Schedule &author, const SimulatedCall &call,
                                 const CallGeometry &shape, std::span<const uint32_t> number_of,
                                 uint32_t peers);

// ---- A rank that runs its program

// Where encoded bytes lie: in a slot of a rank's outbox, counted over all lanes. Without a rank
// they lie in the receiver's own memory, which no rank waits for.
struct WireOrigin {
    static constexpr uint32_t nowhere = ~uint32_t{0};
    uint32_t rank = nowhere, slot = 0;
};

class SimulatedRank {
public:
    // As in the engine's PipelineLane.
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
    bool has_ended() const { return lanes_left_ == 0 && (!program_.has_zero_copy || held_ == 0); }
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
    struct LaneProgress {
        uint64_t instance = 0;
        uint32_t oldest = 0; // first task that is not done
        bool is_over = false;
        std::vector<uint32_t> ready;  // a heap, the first task on top
        std::vector<uint32_t> parked; // tasks that encode into slots which are still read
        std::vector<uint32_t> waits;
        std::vector<bool> is_done;
    };

    void begin(LaneProgress &lane, uint64_t instance);
    void make_ready(LaneProgress &lane, uint32_t task);
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
    std::vector<LaneProgress> lanes_;
    std::vector<bool> has_arrived_;
    // Indexed by call, receive and instance modulo `most_lanes_`: a sender with more lanes than
    // this rank may be that many instances ahead.
    std::vector<WireOrigin> arrived_;
    std::vector<WireOrigin> origins_; // by lane and wire
    std::vector<uint32_t> holds_;     // by lane and own slot: how many readers need the slot
};

// ---- GOAL text

// Calls write(text) for a head line and then for each rank in order. Stops at the first error of
// write() and returns it. Instance i of the schedule begins when instance i - lanes has ended.
// Unlike in the engine, messages do not wait for free slots. Returns invalid_argument if no
// schedule or cut fits the call.
Done write_goal(const SimulatedCall &call, const std::function<Done(const std::string &)> &write);

} // namespace qccl
