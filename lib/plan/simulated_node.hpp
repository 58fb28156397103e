// What the simulator keeps of each rank that it runs, and of each message that is under way. Used
// by the simulator alone.
#pragma once

#include "plan/simulated_rank.hpp"
#include "plan/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace qccl {

// Or a piece of one: the receiver hears of the message with the last one.
struct SimulatedMessage {
    static constexpr uint32_t none = ~uint32_t{0};

    uint32_t from = 0, to = 0;   // classes
    uint32_t call = 0, task = 0; // of the receiver
    uint64_t instance = 0;
    double bytes = 0;
    bool is_last = true;
    double work_ns = 0; // of the receiver, if it is not the last
    double latency_ns = 0;
    WireOrigin origin; // where the bytes lie
    PathTimes path;
    double begin_ns = 0;
    const RankClasses::Peer *peer = nullptr; // the sender's
    uint32_t next = none;                    // of the stream
};

// The messages from one rank to another, in order; the first one is on the links.
struct MessageStream {
    uint32_t first = SimulatedMessage::none, last = SimulatedMessage::none;
};

// The pieces of a message. A network carries the first bytes while the processors still have the
// others to do with, so a message that costs them something goes piece by piece.
class MessagePieces {
public:
    MessagePieces(const RankClasses::Peer &sender, double bytes)
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

// The first rank of a class.
struct SimulatedNode {
    explicit SimulatedNode(SimulatedRank r) : rank(std::move(r)) {}

    // What it does.
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
    double pieces_ns = 0;  // of messages that have not come whole: still to be handled
    PathTimes path;        // until now, or until it had nothing to do
    double since_ns = 0;   // that it has been busy, or has not
    double counted_ns = 0; // the first call that counts began
    double busy_ns = 0, finish_ns = 0;
    uint64_t sent_bytes = 0;
};

} // namespace qccl
