// The rendezvous as it runs in the process that serves it: one thread that owns all its
// state and never blocks on anybody.
#pragma once

#include "bootstrap/assembly.hpp"
#include "bootstrap/channel.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/rendezvous.hpp"

#include <memory>

struct pollfd;

namespace qccl {

class RendezvousServer {
public:
    RendezvousServer(std::vector<Socket> listeners, const Secret &secret,
                     const RendezvousOptions &options, Afterwards afterwards);
    ~RendezvousServer();
    void run(); // until every rank has left, or nobody can be helped any more

private:
    enum class Stage : uint8_t { greets, proves, member, refused };
    struct Peer;

    bool is_over(TimePoint now) const;
    TimePoint next_deadline() const;
    // Nobody waits here for ranks that have yet to come.
    bool has_served() const { return assembly_.failure() || assembly_.is_complete(); }
    void close_doors();
    std::vector<pollfd> wait();

    void accept_strangers(const Socket &listener, TimePoint now);
    void enter(Peer &peer, Stage stage);
    void drop_oldest_stranger(TimePoint now);
    // There is no descriptor for who stands at the door.
    void bear_deafness(TimePoint now, int problem);
    void expire(TimePoint now);

    // Each returns false where the peer is to be dropped.
    bool serve(Peer &peer);
    bool take_hello(Peer &peer);
    bool take_proof(Peer &peer);
    bool take_frames(Peer &peer);
    bool take_frame(Peer &peer, const Frame &frame);

    bool send(Peer &peer, FrameKind kind, const Payload &payload);
    void broadcast(FrameKind kind, const Payload &payload);
    void find_host(const Peer &peer, const Claim &claim);
    void tell_failure(TimePoint now);
    // Once, and only while ranks are missing: the process may be one of them.
    void warn_of_other_secret(const Peer &peer);
    void dismiss(Peer &peer);
    Payload host_payload() const;

    std::vector<Socket> listeners_;
    std::vector<ForkShield> shields_; // of the listeners: a child would keep the port
    const Secret secret_;
    const std::chrono::nanoseconds linger_;
    const Afterwards afterwards_;
    Warn warn_; // empty once it has warned
    const Claim self_;
    Assembly assembly_;
    std::vector<std::unique_ptr<Peer>> peers_; // in the order in which they came
    std::vector<Peer *> seats_;                // by rank; null: not here
    int32_t host_rank_ = Error::no_rank;       // the rank that lives in this process
    TimePoint deaf_until_{};                   // no descriptors were left to accept with
    std::optional<TimePoint> deaf_since_;      // and have not been ever since
    TimePoint closes_at_ = TimePoint::max();   // the doors; set once the assembly is complete
    TimePoint ends_at_ = TimePoint::max();     // set once the assembly has failed
};

} // namespace qccl
