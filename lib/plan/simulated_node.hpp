// The simulator's state of each rank that it runs, and of each message that is under way. Used by
// the simulator alone; one thread.
#pragma once

#include "plan/simulated_rank.hpp"
#include "plan/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace qccl {

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
    const RankClasses::Peer *peer = nullptr; // the sender's
    uint32_t next = none;                    // of the stream
};

// The messages from one rank to another, in order. The first one is on the links.
struct MessageStream {
    uint32_t first = SimulatedMessage::none, last = SimulatedMessage::none;
};

// Cuts a message into pieces. A network carries the first bytes while processors still handle the
// others, so a message that costs processors time goes piece by piece.
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
