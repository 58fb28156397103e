// Implements sockets and channels, whose calls return at once if the socket is not ready. Opens the
// listeners of a rendezvous, starts the thread that serves it, and makes the unique id that says
// where it is. That thread accepts connections, performs the server's side of the handshake, and
// passes on what ranks send and what the state decides. It waits only in poll().

#include "base/exception_boundary.hpp"
#include "base/system.hpp"
#include "bootstrap/rendezvous.hpp"
#include "net/addresses.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <unistd.h>

namespace qccl {

// ---- Connections

Socket::~Socket() {
    if (is_open()) shutdown(get(), SHUT_RDWR);
}

Result<Socket> make_socket(AddressFamily family) {
    const int domain = family == AddressFamily::ipv4 ? AF_INET : AF_INET6;
    Socket socket(::socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.is_open()) return cannot("open a socket");
    return socket;
}

void tune(const Socket &socket) {
    // With these values the loss of a host is noticed after 10 + 4 * 5 = 30 s. TCP_USER_TIMEOUT is
    // not set: it would also end the connection to a process that is stopped and does not read.
    const auto set = [&](int level, int option, int value) {
        setsockopt(socket.get(), level, option, &value, sizeof value);
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set(IPPROTO_TCP, TCP_KEEPCNT, 4);
}

Channel::Filled Channel::fill(size_t bytes) {
    // The buffer grows only by what has arrived, so that a header that announces many bytes costs
    // nothing.
    static constexpr size_t most_at_once = 64 << 10;
    while (held_.size() < bytes) {
        const size_t before = held_.size();
        const size_t room = std::min(bytes - before, most_at_once);
        held_.resize(before + room);
        const ssize_t got = recv(socket_.get(), held_.data() + before, room, 0);
        held_.resize(before + static_cast<size_t>(std::max<ssize_t>(got, 0)));
        if (got > 0 || (got < 0 && errno == EINTR)) continue;
        return got < 0 && errno == EAGAIN ? Filled::not_yet : Filled::gone;
    }
    return Filled::all;
}

void Channel::drop(size_t bytes) {
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(bytes));
}

void Channel::queue(std::span<const std::byte> bytes) {
    queue(std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end()));
}

void Channel::queue(const Payload &payload) {
    if (!payload->empty()) output_.push_back(payload);
}

bool Channel::flush() {
    while (has_output()) {
        const std::vector<std::byte> &next = *output_.front();
        // Without MSG_NOSIGNAL, sending to a peer that has gone would kill this process with
        // SIGPIPE.
        const ssize_t sent =
            send(socket_.get(), next.data() + sent_, next.size() - sent_, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return errno == EAGAIN;
        sent_ += static_cast<size_t>(sent);
        if (sent_ < next.size()) continue;
        output_.pop_front();
        sent_ = 0;
    }
    return true;
}

// ---- Listeners, server thread, unique id

// Connections that may wait while the thread is busy; the kernel lowers the number to somaxconn.
static constexpr int listen_backlog = 4096;

// Any port would do, but one that is free on one address may be taken on another.
static constexpr int most_ports_tried = 16;

// Returns the errno that kept one address from being opened; 0: none.
static Result<int> open_listener(Endpoint &endpoint, std::vector<Socket> &listeners) {
    QCCL_TRY(Socket socket, make_socket(endpoint.family));
    const int yes = 1;
    // Connections of the previous rendezvous must not keep the port in use.
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (endpoint.family == AddressFamily::ipv6)
        setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    SocketAddress address = to_socket_address(endpoint);
    if (bind(socket.get(), address.get(), address.bytes) != 0 ||
        listen(socket.get(), listen_backlog) != 0 ||
        getsockname(socket.get(), address.get(), &address.bytes) != 0)
        return errno;
    endpoint = to_endpoint(address.get());
    listeners.push_back(std::move(socket));
    return 0;
}

static Error cannot_listen(const Endpoint &endpoint, int problem) {
    return Error::make(Code::system_error, "cannot listen on %s: %s", text(endpoint).c_str(),
                       strerror(problem))
        .compared(0, problem);
}

// If the error's `got` is EADDRINUSE, another port may work.
static Result<std::vector<Socket>> try_listeners(std::vector<Endpoint> &endpoints) {
    std::vector<Socket> listeners;
    std::vector<Endpoint> opened;
    std::optional<Error> foreign;
    for (Endpoint endpoint : endpoints) {
        endpoint.port = opened.empty() ? endpoints.front().port : opened.front().port;
        QCCL_TRY(const int problem, open_listener(endpoint, listeners));
        // ENODEV and EINVAL occur if the interface has just gone.
        if (problem == 0)
            opened.push_back(endpoint);
        else if (problem == EADDRNOTAVAIL || problem == ENODEV || problem == EINVAL)
            foreign = cannot_listen(endpoint, problem);
        else
            return cannot_listen(endpoint, problem);
    }
    if (opened.empty()) return *foreign;
    endpoints = opened;
    return listeners;
}

Result<std::vector<Socket>> open_listeners(std::vector<Endpoint> &endpoints) {
    for (int tried = 1;; tried++) {
        auto listeners = try_listeners(endpoints);
        const bool may_try_again = endpoints.front().port == 0 && tried < most_ports_tried;
        if (listeners || !may_try_again || listeners.error().got != EADDRINUSE) return listeners;
    }
}

static void *serve(void *argument) {
    const std::unique_ptr<RendezvousServer> server(static_cast<RendezvousServer *>(argument));
    pthread_setname_np(pthread_self(), "qccl-rendezvous");
    // An exception that leaves a thread would end the process. Instead only the rendezvous ends,
    // and the ranks see their connections close.
    (void)exception_boundary([&]() -> Done {
        server->run();
        return {};
    });
    return nullptr;
}

// The thread is detached and never joined, so that a process may exit at any time.
static Done start(std::unique_ptr<RendezvousServer> server) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    const SignalBlocker while_it_starts;
    pthread_t thread;
    const int problem = pthread_create(&thread, &attributes, serve, server.get());
    pthread_attr_destroy(&attributes);
    if (problem != 0)
        return Error::make(Code::system_error, "cannot start the rendezvous: %s",
                           strerror(problem));
    (void)server.release(); // serve owns it
    return {};
}

Done serve_rendezvous(std::vector<Socket> listeners, const Secret &secret,
                      const RendezvousOptions &options, Afterwards afterwards) {
    return start(
        std::make_unique<RendezvousServer>(std::move(listeners), secret, options, afterwards));
}

Result<UniqueId> create_unique_id(const RendezvousOptions &options) {
    QCCL_TRY(prepare_secrets());
    IdFields fields;
    QCCL_TRY(fields.endpoints, choose_endpoints(options.interface));
    QCCL_TRY(auto listeners, open_listeners(fields.endpoints));
    randombytes_buf(fields.secret.data(), fields.secret.size());
    QCCL_TRY(serve_rendezvous(std::move(listeners), fields.secret, options, Afterwards::tell));
    return pack(fields);
}

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

struct RendezvousServer::RendezvousPeer {
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
        const size_t listeners = listeners_.size();
        for (size_t i = listeners; i < events.size(); i++)
            if (events[i].revents && !peers_[i - listeners]->is_gone &&
                !serve(*peers_[i - listeners]))
                dismiss(*peers_[i - listeners]);

        const TimePoint now = Clock::now();
        for (size_t i = 0; i < listeners_.size(); i++)
            if (events[i].revents) accept_strangers(listeners_[i], now);
        expire(now);
        send_failure(now);
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
        tune(socket);
        peers_.push_back(std::make_unique<RendezvousPeer>(
            RendezvousPeer{Channel(std::move(socket)), to_endpoint(address.get()), now}));
        enter(*peers_.back(), PeerStage::greets);
    }
}

void RendezvousServer::enter(RendezvousPeer &peer, PeerStage stage) {
    peer.stage = stage;
    if (stage == PeerStage::member) return;
    const auto is_there = [stage](const auto &each) {
        return each->stage == stage && !each->is_gone;
    };
    const auto crowd = std::count_if(peers_.begin(), peers_.end(), is_there);
    if (static_cast<size_t>(crowd) <= most_strangers) return;
    dismiss(**std::find_if(peers_.begin(), peers_.end(), is_there));
}

// A connection that is accepted in place of a dropped one does not end the lack of descriptors: on
// a loaded host, ranks could drive each other out in turns until their timeout. The lack ends when
// a rank joins, or when nobody has been kept out for as long as a handshake may take.
void RendezvousServer::accept_backoff(TimePoint now, int problem) {
    if (!accept_failing_since_ || now - accept_failed_at_ > handshake_time)
        accept_failing_since_ = now;
    accept_failed_at_ = now;
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

void RendezvousServer::dismiss(RendezvousPeer &peer) {
    if (peer.is_gone) return;
    peer.is_gone = true;
    if (!peer.is_member()) return;
    seats_[peer.rank] = nullptr;
    state_.depart(peer.rank, peer.farewell);
}

bool RendezvousServer::serve(RendezvousPeer &peer) {
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

bool RendezvousServer::take_hello(RendezvousPeer &peer) {
    const auto filled = peer.channel.fill(sizeof(Hello));
    if (filled != Channel::Filled::all) return filled == Channel::Filled::not_yet;
    std::memcpy(&peer.seen.hello, peer.channel.held().data(), sizeof(Hello));
    peer.channel.drop(sizeof(Hello));

    const Greeted greeted = check_greeting(peer.seen.hello);
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

void RendezvousServer::warn_of_other_secret(const RendezvousPeer &peer) {
    if (!warn_ || has_served()) return;
    const std::string sentence = "turned away a process at " + address_of(peer.from) +
                                 " whose secret differs (QCCL_SECRET_FILE), or which belongs to "
                                 "another job";
    std::exchange(warn_, nullptr)(sentence.c_str());
}

bool RendezvousServer::take_proof(RendezvousPeer &peer) {
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
        return send(peer, FrameKind::failed, payload_of(joined.error()));
    }
    enter(peer, PeerStage::member);
    accept_failing_since_.reset();
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

void RendezvousServer::find_host(const RendezvousPeer &peer, const Claim &claim) {
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

bool RendezvousServer::take_frames(RendezvousPeer &peer) {
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

bool RendezvousServer::take_frame(RendezvousPeer &peer, const Frame &frame) {
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
        (void)send(peer, FrameKind::missing, payload_of(answer));
        return true;
    }
    case FrameKind::leave: peer.farewell = RendezvousState::Farewell::leave; return false;
    case FrameKind::give_up: peer.farewell = RendezvousState::Farewell::give_up; return false;
    default: return false;
    }
}

bool RendezvousServer::send(RendezvousPeer &peer, FrameKind kind, const Payload &payload) {
    const Sealed sealed = peer.session.seal(kind, *payload);
    peer.channel.queue(std::as_bytes(std::span(&sealed.head, 1)));
    peer.channel.queue(payload);
    peer.channel.queue(sealed.tag);
    return peer.channel.flush();
}

void RendezvousServer::broadcast(FrameKind kind, const Payload &payload) {
    // A connection that breaks here is noticed by the next poll.
    for (RendezvousPeer *const peer : seats_)
        if (peer && static_cast<int32_t>(peer->rank) != host_rank_)
            (void)send(*peer, kind, payload);
    // The rank in this process is told last: its process may exit at once and end this thread.
    if (host_rank_ != Error::no_rank && seats_[static_cast<size_t>(host_rank_)])
        (void)send(*seats_[static_cast<size_t>(host_rank_)], kind, payload);
}

void RendezvousServer::send_failure(TimePoint now) {
    if (!state_.failure() || ends_at_ != TimePoint::max()) return;
    ends_at_ = peers_.empty()
                   ? now
                   : now + (accept_failing_since_
                                ? std::min<std::chrono::nanoseconds>(deaf_linger, linger_)
                                : linger_);
    broadcast(FrameKind::failed, payload_of(*state_.failure()));
}

} // namespace qccl
