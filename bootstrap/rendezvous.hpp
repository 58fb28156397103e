// The two ends of a rendezvous and what they share: sockets, and the Channel, a non-blocking TCP
// connection with a receive buffer and a send queue, which does not interpret the bytes. Below them
// stand the functions that serve or join a rendezvous whose endpoints and secret are known. The
// unique-id and environment bootstraps use them. Joining blocks; serving runs on a thread of its
// own. One thread at a time may use a Channel.
//
// A rank's side begins with the attempt to join (how long it lasts, and the sentence that tells the
// user what keeps the rank out) and the handshake with the server (connect, check that the server
// holds the secret, prove the same); join_rendezvous() and ask_for_room() use both. JoinAttempt
// opens no connection and does not block; introduce() and wait_until() block, at most until the
// attempt's deadline. One thread at a time may use an attempt.
//
// RendezvousServer is the server's side. One background thread, which serve_rendezvous() starts,
// owns all its state and never blocks on a single peer. No other thread calls it.
#pragma once

#include "base/clock.hpp"
#include "base/system.hpp"
#include "bootstrap/bootstraps.hpp"
#include "bootstrap/rendezvous_protocol.hpp"
#include "bootstrap/rendezvous_state.hpp"
#include "net/addresses.hpp"

#include <deque>
#include <memory>
#include <span>
#include <vector>

struct pollfd;

namespace qccl {

// ---- Connections

// Owns a socket descriptor. Shuts down both directions before it closes the descriptor, because a
// forked child may hold a copy of the descriptor that would keep the connection open.
class Socket {
public:
    Socket() = default;
    explicit Socket(int descriptor) : descriptor_(descriptor) {}
    Socket(Socket &&) = default;
    Socket &operator=(Socket &&) = default;
    ~Socket();

    int get() const { return descriptor_.number(); }
    bool is_open() const { return descriptor_.is_open(); }
    HideOnFork shield() const { return HideOnFork(descriptor_); }
    // Closes this process's copy of the descriptor without ending the connection.
    void forget() { descriptor_ = FileDescriptor(); }

private:
    FileDescriptor descriptor_;
};

Result<Socket> make_socket(AddressFamily family);
// Sets TCP_NODELAY, so that small messages leave at once, and keepalive, so that the loss of a
// host is noticed.
void tune(const Socket &socket);

class Channel {
public:
    enum class Filled : uint8_t { all, not_yet, gone };

    explicit Channel(Socket socket) : socket_(std::move(socket)) {}

    int descriptor() const { return socket_.get(); }
    std::span<const std::byte> held() const { return held_; }
    // Reads until `bytes` bytes are held, never more. Returns `not_yet` if they have not all
    // arrived, and `gone` if the peer has closed the connection or it has failed.
    Filled fill(size_t bytes);
    void drop(size_t bytes);

    void queue(std::span<const std::byte> bytes);
    void queue(const Payload &payload);
    bool flush(); // sends what the socket takes; false: the peer is gone
    bool has_output() const { return !output_.empty(); }
    void forget() { socket_.forget(); }

private:
    Socket socket_;
    std::vector<std::byte> held_;
    std::deque<Payload> output_;
    size_t sent_ = 0; // bytes sent of the first entry
};

// ---- Serving and joining

// What the server does once all ranks are there. `tell`: as long as any rank is there, it tells a
// late rank that all are there. `make_room`: it does so for the linger time only, and leaves the
// port to a rank that asks for it for the next rendezvous. Ranks of this rendezvous that come early
// for the next one have to try again.
enum class Afterwards : uint8_t { tell, make_room };

// Listens at the same port on all endpoints: that of the first, or if it is 0 any free port, which
// is then written into all. Removes endpoints that turn out not to be this machine's, as long as
// others remain. Returns system_error if it cannot listen.
Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints);

// Serves a rendezvous on a background thread of this process. With make_room that thread calls
// options.warn about a process with another secret, at most once and only before all ranks are
// there.
Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards);

// Asks the process that listens where rank 0 wants to listen to leave the port, which that process
// does if its rendezvous is finished. Returns remote_error if that process serves the same
// rendezvous and so is rank 0, too; then both processes know it. Success only means that another
// try is worthwhile.
Done ask_for_room(const IdFields &fields, uint32_t size, const RendezvousOptions &options);

// Whether the server is already there (none), or may start later than this rank (until_timeout).
enum class Patience : uint8_t { none, until_timeout };

// Tries the endpoints in turn, and blocks until every rank has joined.
Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience);

// ---- Attempt to join

class JoinAttempt {
public:
    // The server is silent or hangs up; which of the two may differ from one try to the next.
    static constexpr const char *silence = "it gives no answer";
    static constexpr const char *other_program =
        "the process listening there is another program, not a rank 0 of QCCL";
    static constexpr const char *other_secret =
        "the process listening there has another secret, or only one of the two has a secret "
        "(QCCL_SECRET_FILE must name the same content on all ranks), or it belongs to another job";

    // With `wants_room`, asks the process that listens there to leave the port to this rank once
    // that process no longer needs it. Keeps a reference to `options`.
    JoinAttempt(const std::vector<Endpoint> &endpoints, const RendezvousOptions &options,
                TimePoint now, bool wants_room = false);

    bool wants_room() const { return wants_room_; }

    TimePoint deadline() const { return deadline_; }
    // Whether the time is over, or the caller has called the attempt off.
    bool is_over() const { return Clock::now() >= deadline_ || !is_wanted(); }
    Done is_wanted() const { return options_.cancel_check ? options_.cancel_check() : Done(); }
    // Bounds the time spent at the next endpoint; 0: all the time that is left.
    void begin_try(std::chrono::nanoseconds longest);
    // Gives an endpoint that has accepted the connection the time for a handshake.
    void extend_try(std::chrono::nanoseconds longest);
    bool is_try_over() const { return Clock::now() >= try_ends_ || !is_wanted(); }
    // When a waiting caller must wake up: at the end of the try, to warn, or to look whether the
    // attempt has been called off.
    TimePoint next_look() const {
        return qccl::next_look(Clock::now(), std::min(try_ends_, warn_at_), options_.cancel_check);
    }

    // Sleeps until then, but not beyond the deadline. Returns the error of an attempt that has been
    // called off.
    Done sleep_until(TimePoint then) const;

    // Sets what keeps the rank out at the moment.
    void note(const char *obstacle) { obstacle_ = obstacle; }
    const std::string &obstacle() const { return obstacle_; }
    bool has_met_stranger() const {
        return obstacle_ == other_program || obstacle_ == other_secret;
    }
    // Warns once, when warn_after has passed. Each rank warns for itself: it has no server yet that
    // could choose one rank to warn for all.
    void warn_if_late();
    void warn_if_late(const char *obstacle) {
        note(obstacle);
        warn_if_late();
    }
    Error no_answer() const;
    Error no_way() const; // names the last obstacle
    // For an obstacle that stays, before the time is over.
    Error no_way(const std::string &lasting_obstacle) const;

private:
    const std::string where_;
    const RendezvousOptions &options_;
    const TimePoint deadline_;
    const bool wants_room_;
    TimePoint try_ends_;
    TimePoint warn_at_;
    std::string obstacle_;
};

// ---- Handshake with the server

struct AuthenticatedChannel {
    Channel channel;
    Session session;
};

// Connects to `endpoint` and performs the handshake. Returns nothing if the server hung up before
// it had checked the rank, as it does to the oldest connection when very many arrive. Success does
// not mean yet that the server has accepted the proof. Errors: peer_lost if no process listens
// there or if the listener does not hold the secret, timeout, invalid_argument if the server has
// another version.
Result<std::optional<AuthenticatedChannel>>
introduce(const Endpoint &endpoint, const Secret &secret, const Claim &claim, JoinAttempt &attempt);

// Sleeps until the channel is readable, can send what is queued, or the deadline has passed.
void wait_until(const Channel &channel, TimePoint deadline);

class RendezvousServer {
public:
    RendezvousServer(std::vector<Socket> listeners, const Secret &secret,
                     const RendezvousOptions &options, Afterwards afterwards);
    ~RendezvousServer();
    void run(); // returns when every rank has left, or some time after a failure

private:
    enum class PeerStage : uint8_t { greets, proves, member, refused };
    struct RendezvousPeer;

    bool is_over(TimePoint now) const;
    TimePoint next_deadline() const;
    // No rank waits here for others that have yet to join.
    bool has_served() const { return state_.failure() || state_.is_complete(); }
    void close_listeners();
    std::vector<pollfd> wait();

    void accept_strangers(const Socket &listener, TimePoint now);
    void enter(RendezvousPeer &peer, PeerStage stage);
    void drop_oldest_stranger(TimePoint now);
    // No descriptor is left for a new connection. Gives up on the missing ranks if that lasts.
    void accept_backoff(TimePoint now, int problem);
    void expire(TimePoint now);

    // Each returns false if the caller must drop the peer.
    bool serve(RendezvousPeer &peer);
    bool take_hello(RendezvousPeer &peer);
    bool take_proof(RendezvousPeer &peer);
    bool take_frames(RendezvousPeer &peer);
    bool take_frame(RendezvousPeer &peer, const Frame &frame);

    bool send(RendezvousPeer &peer, FrameKind kind, const Payload &payload);
    void broadcast(FrameKind kind, const Payload &payload);
    void find_host(const RendezvousPeer &peer, const Claim &claim);
    void send_failure(TimePoint now);
    // Warns once, and only while ranks are missing: the process may be one of them.
    void warn_of_other_secret(const RendezvousPeer &peer);
    void dismiss(RendezvousPeer &peer);
    Payload host_payload() const;

    std::vector<Socket> listeners_;
    std::vector<HideOnFork> shields_; // of the listeners: a forked child would keep the port
    const Secret secret_;
    const std::chrono::nanoseconds linger_;
    const Afterwards afterwards_;
    Warn warn_; // empty once it has been called
    const Claim self_;
    RendezvousState state_;
    std::vector<std::unique_ptr<RendezvousPeer>> peers_; // in order of arrival
    std::vector<RendezvousPeer *> seats_;                // by rank; null: not connected
    int32_t host_rank_ = Error::no_rank;                 // the rank in this process
    TimePoint accept_paused_until_{}; // accepts nothing until then, for lack of descriptors
    std::optional<TimePoint> accept_failing_since_; // since when descriptors have been lacking
    TimePoint accept_failed_at_{};                  // when one was last lacking
    TimePoint closes_at_ = TimePoint::max(); // when listeners close; set once all ranks joined
    TimePoint ends_at_ = TimePoint::max();   // set once the rendezvous has failed
};

} // namespace qccl
