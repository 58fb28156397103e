// Runs the lowered schedules of all ranks of a call in simulated time: segments in lanes as the
// engine runs them, computing at given speeds, messages over links that are shared fairly. The
// simulation is driven by events; the same input gives the same result to the bit. simulate() and
// its types are for the tools (qccl-perf simulate).
//
// The event queue and the state of ranks and messages are used by the simulator alone. The event
// queue has computing tasks, bytes on links, and messages that arrive. The end of an activity may
// move while other activities begin and end. Ranks, streams and messages are plain numbers there.
//
// Pure: one thread for a simulation, nothing blocks but the computing itself.
#pragma once

#include "base/result.hpp"
#include "plan/rank_program.hpp"
#include "plan/simulator/fabric.hpp"
#include "plan/simulator/rank_classes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qccl {

// ---- Simulations

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

    struct LinkLoad {
        std::string name; // of the first one that is alike
        uint32_t count = 0;
        bool is_cores = false;
        double busy_ns = 0; // at full rate, in a call
    };
    std::vector<LinkLoad> links; // that carry anything, the busiest first
    Geometry geometry;
};

// Simulates a call. Returns invalid_argument if no schedule or cut fits the call, or if the fabric
// has another number of ranks, and internal_error if a rank waits for ever.
Result<Simulation> simulate(const SimulatedCall &call, const Fabric &fabric,
                            const SimulationOptions &options = {});

// ---- Event queue

class Activities {
public:
    static constexpr uint32_t no_flow = ~uint32_t{0};
    enum class Kind : uint8_t {
        task,   // a task of a rank has ended
        stream, // a message's bytes have left the links; the caller answers with continue_stream or
                // end_stream
        arrival, // a message has reached its receiver
    };
    struct Event {
        Kind kind = Kind::task;
        uint32_t subject = 0;
        uint32_t flow = no_flow; // of a stream, or of a task on shared cores
    };

    void add_link(double capacity) { shares_.add_link(capacity); }

    double now() const { return now_; }
    // Begins a task of a rank that has a core to itself.
    void begin_task(uint32_t rank, double ns) { push({Kind::task, rank}, now_ + ns); }
    // Begins a task of a rank that shares `cores` with others. The rank uses at most one core.
    void begin_shared_task(uint32_t rank, double ns, const FairShare::LinkShare &cores) {
        begin({Kind::task, rank}, ns, std::span(&cores, 1), 1);
    }
    // Begins a stream with its first message. The messages of a stream cross the links one after
    // the other.
    void begin_stream(uint32_t stream, double bytes, std::span<const FairShare::LinkShare> links) {
        begin({Kind::stream, stream}, bytes, links, FairShare::unlimited);
    }
    // After a Kind::stream event: puts the stream's next message on the links, or ends the stream.
    void continue_stream(const Event &ended, double bytes);
    void end_stream(const Event &ended) { end(ended.flow); }
    void begin_arrival(uint32_t message, double ns) { push({Kind::arrival, message}, now_ + ns); }

    // Returns the activity that ends next; now() is then the time of its end. Events of the same
    // time come in the order in which they were begun. Returns nothing if no activity is left.
    std::optional<Event> next();

private:
    struct Timer {
        double time = 0;
        uint64_t order = 0;
        Event event;        // an event with a flow is due when the flow has ended
        uint32_t stamp = 0; // of the flow; flow numbers are reused

        bool operator>(const Timer &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    struct ActiveFlow {
        Event event;
        uint32_t stamp = 0;
        double left = 0, rate = 0; // as of `since`
        double since = 0, end = 0;
        double timer = 0; // time of the earliest timer that is set
    };

    void push(const Event &event, double time) { timers_.push({time, order_++, event}); }
    void begin(const Event &event, double amount, std::span<const FairShare::LinkShare> uses,
               double most_rate);
    void end(uint32_t flow);
    void settle();
    void set_timer(uint32_t number);

    double now_ = 0;
    uint64_t order_ = 0;
    bool is_settled_ = true;
    FairShare shares_;
    std::vector<ActiveFlow> flows_; // by FairShare's flow number
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
};

// ---- State of ranks and messages

// A message, or a piece of one. The receiver learns of the message with the last piece.
struct SimulatedMessage {
    static constexpr uint32_t none = ~uint32_t{0};

    uint32_t from = 0, to = 0;   // classes
    uint32_t call = 0, task = 0; // of the receiver
    uint64_t instance = 0;
    double bytes = 0;
    bool is_last = true;
    double work_ns = 0; // of the receiver, for a piece that is not the last
    double latency_ns = 0;
    WireOrigin origin; // where the bytes lie
    PathTimes path;
    double begin_ns = 0;
    const RankClasses::ClassPeer *peer = nullptr; // the sender's
    uint32_t next = none;                         // of the stream
};

// The messages from one rank to another, in order. The first one is on the links.
struct MessageStream {
    uint32_t first = SimulatedMessage::none, last = SimulatedMessage::none;
};

// Cuts a message into pieces. A network carries the first bytes while processors still handle the
// others, so a message that costs processors time goes piece by piece.
class MessagePieces {
public:
    MessagePieces(const RankClasses::ClassPeer &sender, double bytes)
        : bytes_(bytes),
          piece_(!sender.is_by_reference && sender.send.byte_ns > 0 ? std::min(bytes, network_piece)
                                                                    : bytes) {}

    double next(double sent) const { return std::min(piece_, bytes_ - sent); }
    double last() const {
        return piece_ < bytes_ ? bytes_ - (std::ceil(bytes_ / piece_) - 1) * piece_ : bytes_;
    }

private:
    static constexpr double network_piece = 128 << 10;

    double bytes_, piece_;
};

// The first rank of a class, which stands for all of them.
struct SimulatedNode {
    explicit SimulatedNode(SimulatedRank r) : rank(std::move(r)) {}

    // What the rank does.
    enum class Work : uint8_t { nothing, begin_call, task, receive_pieces };

    void begin_call() {
        rank.begin_call();
        has_call = true;
    }

    SimulatedRank rank;
    Work work = Work::nothing;
    SimulatedRank::Choice task;
    double sent = 0; // bytes of the message that the task sends
    bool is_woken = false, has_call = false;
    double pieces_ns = 0;  // work on pieces of incomplete messages that is still to be done
    PathTimes path;        // until now, or until the rank became idle
    double since_ns = 0;   // when the rank became busy or idle
    double counted_ns = 0; // when the first call that counts began
    double busy_ns = 0, finish_ns = 0;
    uint64_t sent_bytes = 0;
};

} // namespace qccl
