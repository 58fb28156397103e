// The server of a rendezvous. One background thread, which serve_rendezvous() starts, owns all its
// state and never blocks on a single peer. No other thread calls it.
#pragma once

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_protocol.hpp"
#include "bootstrap/rendezvous_state.hpp"

#include <memory>

struct pollfd;

namespace qccl {

class RendezvousServer {
public:
    RendezvousServer(std::vector<Socket> listeners, const Secret &secret,
                     const RendezvousOptions &options, Afterwards afterwards);
    ~RendezvousServer();
    void run(); // returns when every rank has left, or some time after a failure

private:
    enum class PeerStage : uint8_t { greets, proves, member, refused };
    struct Peer;

    bool is_over(TimePoint now) const;
    TimePoint next_deadline() const;
    // No rank waits here for others that have yet to join.
    bool has_served() const { return state_.failure() || state_.is_complete(); }
    void close_listeners();
    std::vector<pollfd> wait();

    void accept_strangers(const Socket &listener, TimePoint now);
    void enter(Peer &peer, PeerStage stage);
    void drop_oldest_stranger(TimePoint now);
    // No descriptor is left for a new connection. Gives up on the missing ranks if that lasts.
    void accept_backoff(TimePoint now, int problem);
    void expire(TimePoint now);

    // Each returns false if the caller must drop the peer.
    bool serve(Peer &peer);
    bool take_hello(Peer &peer);
    bool take_proof(Peer &peer);
    bool take_frames(Peer &peer);
    bool take_frame(Peer &peer, const Frame &frame);

    bool send(Peer &peer, FrameKind kind, const Payload &payload);
    void broadcast(FrameKind kind, const Payload &payload);
    void find_host(const Peer &peer, const Claim &claim);
    void tell_failure(TimePoint now);
    // Warns once, and only while ranks are missing: the process may be one of them.
    void warn_of_other_secret(const Peer &peer);
    void dismiss(Peer &peer);
    Payload host_payload() const;

    std::vector<Socket> listeners_;
    std::vector<HideOnFork> shields_; // of the listeners: a forked child would keep the port
    const Secret secret_;
    const std::chrono::nanoseconds linger_;
    const Afterwards afterwards_;
    Warn warn_; // empty once it has been called
    const Claim self_;
    RendezvousState state_;
    std::vector<std::unique_ptr<Peer>> peers_; // in order of arrival
    std::vector<Peer *> seats_;                // by rank; null: not connected
    int32_t host_rank_ = Error::no_rank;       // the rank in this process
    TimePoint accept_paused_until_{}; // accepts nothing until then, for lack of descriptors
    std::optional<TimePoint> accept_failing_since_; // since when descriptors have been lacking
    TimePoint closes_at_ = TimePoint::max(); // when listeners close; set once all ranks joined
    TimePoint ends_at_ = TimePoint::max();   // set once the rendezvous has failed
};

} // namespace qccl
