// What a rank does in a simulated call, without bytes: its tasks with their times and lengths,
// which run in lanes as in the engine. Peers are numbered by the rank's own first use of them, so
// that ranks that do the same share one program. Used by the simulator, the GOAL export and the
// counter of link bytes; pure, any thread.
#pragma once

#include "base/result.hpp"
#include "plan/cost.hpp"
#include "schedule/shape.hpp"
#include "schedule/task_graph.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// Speeds of one core, in bytes of unencoded values a nanosecond.
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
    uint64_t lending_bytes = uint64_t{64} << 10;
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
    struct Piece {
        Verb verb = Verb::copy;
        double ns_per_value = 0;
    };
    struct Task {
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
    std::vector<Task> tasks;
    std::vector<Piece> pieces;
    std::vector<uint32_t> slots;
    uint32_t outbox = 0, wires = 0, receives = 0;
    uint32_t lanes = 1;
    bool lends = false; // peers read the caller's buffers, so the call ends when they have done so
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

} // namespace qccl
