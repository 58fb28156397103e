// Runs the lowered schedules of all ranks of a call in simulated time: segments in lanes as the
// engine runs them, computing at given speeds, messages over links that are shared fairly. The
// simulation is driven by events; the same input gives the same result to the bit. Used by the
// tools (qccl-perf simulate). Pure: one thread for a simulation, nothing blocks but the computing
// itself.
#pragma once

#include "base/result.hpp"
#include "plan/fabric.hpp"
#include "plan/rank_classes.hpp"
#include "plan/rank_program.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qccl {

// What a chain of events took. Each event began when the one before it had ended.
struct PathTimes {
    double compute_ns = 0;  // encoding, decoding, adding, copying, and waiting for a core's turn
    double handling_ns = 0; // sending and receiving messages
    double wire_ns = 0;     // bytes on links, and waiting for other messages' bytes there
    double latency_ns = 0;

    double sum() const { return compute_ns + handling_ns + wire_ns + latency_ns; }
    // Returns a path of `ns` with parts in the same proportion.
    PathTimes scaled_to(double ns) const;
};

// A span of a rank's time.
struct SimulatedSpan {
    enum class Kind : uint8_t {
        compute, // verb says what
        handle,  // a message is sent or received: verb
        wait,    // the rank has nothing to do
        wire,    // a message is on its way from the rank to `peer`
    };
    Kind kind = Kind::wait;
    Verb verb = Verb::copy;
    uint32_t rank = 0; // the first one of its class
    uint32_t peer = 0; // handle, wire: the first one of its class
    uint64_t instance = 0, bytes = 0;
    double begin_ns = 0, end_ns = 0;
};

struct SimulationOptions {
    Merging merging = Merging::automatic;
    // `calls` are counted. Every rank makes them one after the other, each as soon as its own part
    // in the one before is done. The `lead_in` calls come before them. In these, ranks that have
    // begun together get out of step, and bursts that a pause has left are used up.
    uint32_t calls = 1, lead_in = 0;
    // The part of its burst that each link has left at first.
    double burst_share = 1;
    // Called for each span that is not empty, in the order of their ends.
    std::function<void(const SimulatedSpan &span)> trace = {};
    // Called for the ranks whose schedules are written, then for the instances that ranks have
    // done.
    Progress progress = {};
};

struct Simulation {
    // The time of each counted call, on the rank that takes longest. For a single call, the time
    // until the last rank ends.
    double time_ns = 0;
    std::vector<double> finish_ns; // by rank: when it has made all calls
    // The parts of the path to that rank's end, of all calls together, scaled so that they add up
    // to time_ns.
    PathTimes critical;
    // In one call: the bytes that the busiest rank sends, headers included, and the messages of all
    // ranks.
    uint64_t wire_bytes = 0;
    uint64_t messages = 0;
    double burst_share = 1; // left at the end on the link that has the least
    uint32_t classes = 0;   // of ranks that do the same; one rank of each was simulated
    // How long each rank computes and handles messages in a call, by rank; and the largest of these
    // times.
    std::vector<double> busy_ns;
    double compute_ns = 0;

    struct Link {
        std::string name; // of the first one that is alike
        uint32_t count = 0;
        bool is_cores = false;
        double busy_ns = 0; // at full rate, in a call
    };
    std::vector<Link> links; // that carry anything, the busiest first
    Geometry geometry;
};

// Simulates a call. Returns invalid_argument if no schedule or cut fits the call, or if the fabric
// has another number of ranks, and internal_error if a rank waits for ever.
Result<Simulation> simulate(const SimulatedCall &call, const Fabric &fabric,
                            const SimulationOptions &options = {});

} // namespace qccl
