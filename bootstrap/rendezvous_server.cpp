// The thread that serves a rendezvous: accepts connections, performs the server's side of the
// handshake, and passes on what ranks send and what the state decides. It waits only in poll().
#include "bootstrap/rendezvous_server.hpp"

#include "base/system.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <poll.h>

namespace qccl {

using namespace std::chrono_literals;

// A rank answers within a round trip; a peer that is not authenticated may hold a descriptor no
// longer than this.
static constexpr auto handshake_time = 3s;
// Peers at a time that are not authenticated. The newest stay, so that a crowd of silent peers
// keeps no rank out: a rank needs one round trip, within which as many peers again would have to
// connect.
static constexpr size_t most_strangers = 128;
static constexpr int most_accepted_at_once = 32;
static constexpr auto longest_linger = 1h;
// The linger time if no other peer can connect: until the connected ranks have read the failure.
static constexpr std::chrono::seconds deaf_linger = 1s;
static constexpr auto deaf_time = 100ms;
// If there has been no descriptor for a new connection for this long, there will be none later
// either.
static constexpr auto longest_deafness = 5s;
// A burst of frames from one rank must not keep the others waiting.
static constexpr int most_frames_at_once = 16;

struct RendezvousServer::Peer {
    Channel channel;
    Endpoint from;
    TimePoint came_at;
    PeerStage stage = PeerStage::greets;
    Transcript seen{};
    Session session{};
    uint32_t rank = 0;
    RendezvousState::Farewell farewell = RendezvousState::Farewell::none;
    bool is_gone = false;

    bool is_member() const { return stage == PeerStage::member; }
};

template <class T> static Payload payload_of(const T &value) {
    const auto bytes = std::as_bytes(std::span<const T, 1>(&value, 1));
    return std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
}

RendezvousServer::RendezvousServer(std::vector<Socket> listeners, const Secret &secret,
                                   const RendezvousOptions &options, Afterwards afterwards)
    : listeners_(std::move(listeners)), secret_(secret),
      linger_(std::min<std::chrono::nanoseconds>(options.linger, longest_linger)),
      afterwards_(afterwards), warn_(afterwards == Afterwards::make_room ? options.warn : Warn()),
      self_(make_claim(0, 0)), state_(Clock::now(), options.timeout) {
    for (const Socket &listener : listeners_) shields_.push_back(listener.shield());
}

RendezvousServer::~RendezvousServer() = default;

void RendezvousServer::run() {
    while (!is_over(Clock::now())) {
        const std::vector<pollfd> events = wait();
        const size_t doors = listeners_.size();
        for (size_t i = doors; i < events.size(); i++)
            if (events[i].revents && !peers_[i - doors]->is_gone && !serve(*peers_[i - doors]))
                dismiss(*peers_[i - doors]);

        const TimePoint now = Clock::now();
        for (size_t i = 0; i < listeners_.size(); i++)
            if (events[i].revents) accept_strangers(listeners_[i], now);
        expire(now);
        tell_failure(now);
        if (now >= closes_at_) close_listeners();
        std::erase_if(peers_, [](const auto &peer) { return peer->is_gone; });
    }
}

bool RendezvousServer::is_over(TimePoint now) const {
    const bool may_go = afterwards_ == Afterwards::tell || listeners_.empty();
    return (state_.is_over() && may_go) || now >= ends_at_;
}

void RendezvousServer::close_listeners() {
    shields_.clear();
    listeners_.clear();
    closes_at_ = TimePoint::max();
}

TimePoint RendezvousServer::next_deadline() const {
    TimePoint next = state_.failure() ? ends_at_ : state_.deadline();
    next = std::min(next, closes_at_);
    if (accept_paused_until_ != TimePoint{}) next = std::min(next, accept_paused_until_);
    for (const auto &peer : peers_)
        if (!peer->is_member()) next = std::min(next, peer->came_at + handshake_time);
    return next;
}

std::vector<pollfd> RendezvousServer::wait() {
    const TimePoint now = Clock::now();
    std::vector<pollfd> events;
    const bool is_deaf = now < accept_paused_until_;
    if (!is_deaf) accept_paused_until_ = {};
    for (const Socket &listener : listeners_)
        events.push_back({listener.get(), static_cast<short>(is_deaf ? 0 : POLLIN), 0});
    for (const auto &peer : peers_)
        events.push_back({peer->channel.descriptor(),
                          static_cast<short>(POLLIN | (peer->channel.has_output() ? POLLOUT : 0)),
                          0});
    const int ready = poll(events.data(), events.size(), poll_timeout_ms(now, next_deadline()));
    if (ready < 0) { // no memory, or fewer descriptors allowed than open: do not spin
        for (pollfd &event : events) event.revents = 0;
        std::this_thread::sleep_for(deaf_time);
    }
    return events;
}

void RendezvousServer::accept_strangers(const Socket &listener, TimePoint now) {
    for (int i = 0; i < most_accepted_at_once; i++) {
        SocketAddress address;
        address.bytes = sizeof address.storage;
        Socket socket(
            accept4(listener.get(), address.get(), &address.bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket.is_open()) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno == EAGAIN) return;
            // No descriptor or memory is left: free one and try again in a moment.
            accept_backoff(now, errno);
            drop_oldest_stranger(now);
            accept_paused_until_ = now + deaf_time;
            return;
        }
        accept_failing_since_.reset();
        tune(socket);
        peers_.push_back(std::make_unique<Peer>(
            Peer{Channel(std::move(socket)), to_endpoint(address.get()), now}));
        enter(*peers_.back(), PeerStage::greets);
    }
}

void RendezvousServer::enter(Peer &peer, PeerStage stage) {
    peer.stage = stage;
    if (stage == PeerStage::member) return;
    const auto is_there = [stage](const auto &each) {
        return each->stage == stage && !each->is_gone;
    };
    const auto crowd = std::count_if(peers_.begin(), peers_.end(), is_there);
    if (static_cast<size_t>(crowd) <= most_strangers) return;
    dismiss(**std::find_if(peers_.begin(), peers_.end(), is_there));
}

void RendezvousServer::accept_backoff(TimePoint now, int problem) {
    if (!accept_failing_since_) accept_failing_since_ = now;
    if (now - *accept_failing_since_ < longest_deafness) return;
    state_.abandon(Error::make(Code::system_error,
                               "process %u, which serves the rendezvous, cannot accept %s: %s",
                               self_.process, state_.missing().text.c_str(),
                               describe_errno(problem).c_str())
                       .at_rank(host_rank_));
}

void RendezvousServer::drop_oldest_stranger(TimePoint now) {
    // Each rank gets the time for its round trip; otherwise two ranks would drive each other out
    // for ever.
    const auto oldest = std::find_if(peers_.begin(), peers_.end(), [now](const auto &peer) {
        return !peer->is_member() && !peer->is_gone && now >= peer->came_at + deaf_time;
    });
    if (oldest != peers_.end()) dismiss(**oldest);
}

void RendezvousServer::expire(TimePoint now) {
    state_.expire(now);
    for (const auto &peer : peers_)
        if (!peer->is_member() && now >= peer->came_at + handshake_time) dismiss(*peer);
}

void RendezvousServer::dismiss(Peer &peer) {
    if (peer.is_gone) return;
    peer.is_gone = true;
    if (!peer.is_member()) return;
    seats_[peer.rank] = nullptr;
    state_.depart(peer.rank, peer.farewell);
}

bool RendezvousServer::serve(Peer &peer) {
    // Reads in any case: a peer that cannot be sent to may still have sent its farewell.
    const bool is_sound = peer.channel.flush();
    switch (peer.stage) {
    case PeerStage::greets: return take_hello(peer) && is_sound;
    case PeerStage::proves: return take_proof(peer) && is_sound;
    case PeerStage::member: return take_frames(peer) && is_sound;
    // The peer has been told why; it is dropped once it has read that.
    case PeerStage::refused: return peer.channel.fill(1) == Channel::Filled::not_yet && is_sound;
    }
    return false;
}

bool RendezvousServer::take_hello(Peer &peer) {
    const auto filled = peer.channel.fill(sizeof(Hello));
    if (filled != Channel::Filled::all) return filled == Channel::Filled::not_yet;
    std::memcpy(&peer.seen.hello, peer.channel.held().data(), sizeof(Hello));
    peer.channel.drop(sizeof(Hello));

    const Greeted greeted = judge(peer.seen.hello);
    if (greeted == Greeted::stranger) return false;
    peer.seen.challenge = make_challenge(peer.seen.hello, secret_);
    peer.channel.queue(std::as_bytes(std::span(&peer.seen.challenge, 1)));
    // A peer of another version reads ours in the challenge and can report it.
    enter(peer, greeted == Greeted::same_version ? PeerStage::proves : PeerStage::refused);
    return peer.channel.flush();
}

static std::string address_of(const Endpoint &from) {
    const std::string where = text(from);
    return where.substr(0, where.rfind(':'));
}

void RendezvousServer::warn_of_other_secret(const Peer &peer) {
    if (!warn_ || has_served()) return;
    const std::string sentence = "turned away a process at " + address_of(peer.from) +
                                 " whose secret differs (QCCL_SECRET_FILE), or which belongs to "
                                 "another job";
    std::exchange(warn_, nullptr)(sentence.c_str());
}

bool RendezvousServer::take_proof(Peer &peer) {
    const auto filled = peer.channel.fill(sizeof(Proof));
    if (filled != Channel::Filled::all) return filled == Channel::Filled::not_yet;
    Proof proof;
    std::memcpy(&proof, peer.channel.held().data(), sizeof proof);
    peer.channel.drop(sizeof proof);
    if (!is_genuine(proof, peer.seen, secret_)) {
        warn_of_other_secret(peer);
        return false;
    }
    if (afterwards_ == Afterwards::make_room && has_served()) {
        if (peer.seen.hello.greeting.wants_room != 0) {
            close_listeners();
            return false;
        }
        // The rank comes early for the next rendezvous and has to try again.
        if (state_.has_member(proof.claim)) return false;
    }

    peer.session = Session(session_key(peer.seen, secret_), Session::Side::server);
    const std::string where =
        "process " + std::to_string(proof.claim.process) + " at " + address_of(peer.from);
    if (const Done joined = state_.join(proof.claim, where); !joined) {
        enter(peer, PeerStage::refused);
        return send(peer, FrameKind::failed, payload_of(to_bytes(joined.error())));
    }
    enter(peer, PeerStage::member);
    peer.rank = proof.claim.rank;
    seats_.resize(proof.claim.size);
    find_host(peer, proof.claim);
    seats_[peer.rank] = &peer;
    if (!send(peer, FrameKind::accepted, host_payload())) return false;
    if (!state_.is_complete()) return true;
    if (afterwards_ == Afterwards::make_room) closes_at_ = Clock::now() + linger_;
    broadcast(FrameKind::complete, std::make_shared<const std::vector<std::byte>>());
    return true;
}

void RendezvousServer::find_host(const Peer &peer, const Claim &claim) {
    SocketAddress mine;
    mine.bytes = sizeof mine.storage;
    const bool is_here = claim.process == self_.process &&
                         claim.process_namespace == self_.process_namespace &&
                         getsockname(peer.channel.descriptor(), mine.get(), &mine.bytes) == 0 &&
                         peer.from.is_same_host(to_endpoint(mine.get()));
    // Several ranks may be threads of this process; they die together, so naming one is enough.
    if (!is_here || host_rank_ != Error::no_rank) return;
    host_rank_ = static_cast<int32_t>(claim.rank);
    broadcast(FrameKind::host, host_payload());
}

Payload RendezvousServer::host_payload() const { return payload_of(host_rank_); }

bool RendezvousServer::take_frames(Peer &peer) {
    for (int frames = 0; frames < most_frames_at_once;) {
        const auto frame = peer.session.open(peer.channel.held(), most_contributed_bytes);
        if (!frame) return false;
        if (*frame) {
            if (!take_frame(peer, **frame)) return false;
            peer.channel.drop((*frame)->whole_bytes);
            frames++;
            continue;
        }
        const auto filled = peer.channel.fill(Session::wanted_bytes(peer.channel.held()));
        if (filled != Channel::Filled::all) return filled == Channel::Filled::not_yet;
    }
    return true; // nothing is held now; bytes that have come since wake the next poll
}

bool RendezvousServer::take_frame(Peer &peer, const Frame &frame) {
    switch (frame.kind) {
    case FrameKind::contribute:
        state_.contribute(peer.rank, frame.payload, Clock::now());
        if (const Payload result = state_.take_result()) broadcast(FrameKind::result, result);
        return true;
    case FrameKind::wonder:
        if (!state_.elect(peer.rank)) return true;
        [[fallthrough]];
    case FrameKind::ask: {
        const Missing missing = state_.missing();
        // No rank is missing: the message that this rank waits for is on its way and says more.
        if (missing.first == Error::no_rank) return true;
        const Error answer =
            Error::make(Code::timeout, "%s", missing.text.c_str()).at_rank(missing.first);
        (void)send(peer, FrameKind::missing, payload_of(to_bytes(answer)));
        return true;
    }
    case FrameKind::leave: peer.farewell = RendezvousState::Farewell::leave; return false;
    case FrameKind::give_up: peer.farewell = RendezvousState::Farewell::give_up; return false;
    default: return false;
    }
}

bool RendezvousServer::send(Peer &peer, FrameKind kind, const Payload &payload) {
    const Sealed sealed = peer.session.seal(kind, *payload);
    peer.channel.queue(std::as_bytes(std::span(&sealed.head, 1)));
    peer.channel.queue(payload);
    peer.channel.queue(sealed.tag);
    return peer.channel.flush();
}

void RendezvousServer::broadcast(FrameKind kind, const Payload &payload) {
    // A connection that breaks here is noticed by the next poll.
    for (Peer *const peer : seats_)
        if (peer && static_cast<int32_t>(peer->rank) != host_rank_)
            (void)send(*peer, kind, payload);
    // The rank in this process is told last: its process may exit at once and end this thread.
    if (host_rank_ != Error::no_rank && seats_[static_cast<size_t>(host_rank_)])
        (void)send(*seats_[static_cast<size_t>(host_rank_)], kind, payload);
}

void RendezvousServer::tell_failure(TimePoint now) {
    if (!state_.failure() || ends_at_ != TimePoint::max()) return;
    ends_at_ = peers_.empty()
                   ? now
                   : now + (accept_failing_since_
                                ? std::min<std::chrono::nanoseconds>(deaf_linger, linger_)
                                : linger_);
    broadcast(FrameKind::failed, payload_of(to_bytes(*state_.failure())));
}

} // namespace qccl
