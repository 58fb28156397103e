// A rank's side of the rendezvous: connect, handshake, join, wait for the other ranks, exchange.
// The calls block; one thread at a time may use a client.
#include "bootstrap/rendezvous.hpp"

#include "bootstrap/rendezvous_state.hpp"
#include "net/addresses.hpp"

#include <cerrno>
#include <cstring>
#include <thread>

#include <poll.h>
#include <unistd.h>

namespace qccl {

// ---- Attempt to join

JoinAttempt::JoinAttempt(const std::vector<Endpoint> &endpoints, const RendezvousOptions &options,
                         TimePoint now, bool wants_room)
    : where_(text(endpoints)), options_(options), deadline_(deadline_after(now, options.timeout)),
      wants_room_(wants_room), try_ends_(deadline_),
      warn_at_(deadline_after(now, options.warn_after)) {}

void JoinAttempt::begin_try(std::chrono::nanoseconds longest) {
    try_ends_ = std::min(deadline_, deadline_after(Clock::now(), longest));
}

void JoinAttempt::extend_try(std::chrono::nanoseconds longest) {
    if (try_ends_ == deadline_) return;
    try_ends_ = std::min(deadline_, std::max(try_ends_, Clock::now() + longest));
}

Done JoinAttempt::sleep_until(TimePoint then) const {
    const TimePoint end = std::min(deadline_, then);
    for (TimePoint now = Clock::now(); now < end; now = Clock::now()) {
        QCCL_TRY(is_wanted());
        std::this_thread::sleep_until(qccl::next_look(now, end, options_.cancel_check));
    }
    return is_wanted();
}

void JoinAttempt::warn_if_late() {
    if (Clock::now() < warn_at_) return;
    warn_at_ = TimePoint::max();
    const Error sentence =
        Error::make(Code::timeout, "cannot reach the rendezvous at %s yet: %s (%g s so far)",
                    where_.c_str(), obstacle_.c_str(), in_seconds(options_.warn_after));
    if (options_.warn) options_.warn(sentence.text);
}

Error JoinAttempt::no_answer() const {
    if (const Done wanted = is_wanted(); !wanted) return wanted.error();
    return Error::make(Code::timeout, "the rendezvous at %s gives no answer within %g s",
                       where_.c_str(), in_seconds(options_.timeout));
}

Error JoinAttempt::no_way() const {
    return Error::make(Code::timeout, "cannot reach the rendezvous at %s within %g s: %s",
                       where_.c_str(), in_seconds(options_.timeout), obstacle_.c_str());
}

Error JoinAttempt::no_way(const std::string &lasting_obstacle) const {
    return Error::make(Code::peer_lost, "cannot reach the rendezvous at %s: %s", where_.c_str(),
                       lasting_obstacle.c_str());
}

// ---- Handshake with the server

// Time for a handshake with a server that has many ranks to serve, on a busy machine.
static constexpr auto longest_talk = std::chrono::seconds(3);

void wait_until(const Channel &channel, TimePoint deadline) {
    const auto events = static_cast<short>(POLLIN | (channel.has_output() ? POLLOUT : 0));
    pollfd one{channel.descriptor(), events, 0};
    poll(&one, 1, poll_timeout_ms(Clock::now(), deadline));
}

// Blocks until `bytes` bytes are held. Returns false if the server hung up.
static Result<bool> fill(Channel &channel, size_t bytes, JoinAttempt &attempt) {
    for (;;) {
        const auto filled = channel.fill(bytes);
        if (filled != Channel::Filled::not_yet) return filled == Channel::Filled::all;
        attempt.note(JoinAttempt::silence);
        if (attempt.is_try_over()) return attempt.no_answer();
        attempt.warn_if_late();
        wait_until(channel, attempt.next_look());
    }
}

static Result<Channel> connect_to(const Endpoint &endpoint, JoinAttempt &attempt) {
    QCCL_TRY(Socket socket, make_socket(endpoint.family));
    tune(socket);
    const SocketAddress address = to_socket_address(endpoint);
    int problem = connect(socket.get(), address.get(), address.bytes) == 0 ? 0 : errno;
    while (problem == EINPROGRESS || problem == EINTR) {
        pollfd one{socket.get(), POLLOUT, 0};
        socklen_t bytes = sizeof problem;
        if (poll(&one, 1, poll_timeout_ms(Clock::now(), attempt.next_look())) > 0)
            getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &bytes);
        else if (attempt.is_try_over())
            problem = ETIMEDOUT;
        else
            attempt.warn_if_late(strerror(EINPROGRESS));
    }
    if (problem == 0) return Channel(std::move(socket));
    QCCL_TRY(attempt.is_wanted());
    attempt.note(strerror(problem));
    return Error::make(problem == ETIMEDOUT ? Code::timeout : Code::peer_lost,
                       "cannot reach the rendezvous at %s: %s; has the process that made the "
                       "unique id ended?",
                       text(endpoint).c_str(), strerror(problem));
}

static Error other_version(const Endpoint &endpoint, uint16_t version) {
    return invalid_argument(
               "the rendezvous at %s speaks version %u, this library version %u: the ranks "
               "run different releases of QCCL",
               text(endpoint).c_str(), version, protocol_version)
        .compared(protocol_version, version);
}

static Error impostor(const Endpoint &endpoint, JoinAttempt &attempt, const char *obstacle) {
    attempt.note(obstacle);
    return Error::make(Code::peer_lost,
                       "who listens at %s does not hold the secret of the unique id: "
                       "the id is old, or belongs to another job",
                       text(endpoint).c_str());
}

// Sends the hello and the proof. Returns nothing if the server hung up before it had checked the
// rank, as it does when very many connections arrive.
static Result<std::optional<Session>> prove(Channel &channel, const Endpoint &endpoint,
                                            const Secret &secret, const Claim &claim,
                                            JoinAttempt &attempt) {
    Transcript seen{make_hello(attempt.wants_room()), {}};
    channel.queue(std::as_bytes(std::span(&seen.hello, 1)));
    if (!channel.flush()) return std::optional<Session>();

    QCCL_TRY(const bool is_greeted, fill(channel, sizeof(Greeting), attempt));
    if (!is_greeted) return std::optional<Session>();
    std::memcpy(&seen.challenge.greeting, channel.held().data(), sizeof(Greeting));
    const Greeted greeted = check_server_greeting(seen.challenge.greeting);
    if (greeted == Greeted::other_version)
        return other_version(endpoint, seen.challenge.greeting.version);
    if (greeted == Greeted::stranger)
        return impostor(endpoint, attempt, JoinAttempt::other_program);

    QCCL_TRY(const bool is_challenged, fill(channel, sizeof(Challenge), attempt));
    if (!is_challenged) return std::optional<Session>();
    std::memcpy(&seen.challenge, channel.held().data(), sizeof(Challenge));
    channel.drop(sizeof(Challenge));
    const bool is_genuine_server = is_genuine(seen, secret);
    const Proof proof = is_genuine_server ? make_proof(seen, claim, secret) : Proof{};
    channel.queue(std::as_bytes(std::span(&proof, 1)));
    const bool is_sent = channel.flush();
    if (!is_genuine_server) return impostor(endpoint, attempt, JoinAttempt::other_secret);
    if (!is_sent) return std::optional<Session>();
    return std::optional<Session>(Session(session_key(seen, secret), Session::Side::rank));
}

Result<std::optional<AuthenticatedChannel>> introduce(const Endpoint &endpoint,
                                                      const Secret &secret, const Claim &claim,
                                                      JoinAttempt &attempt) {
    QCCL_TRY(Channel channel, connect_to(endpoint, attempt));
    attempt.extend_try(longest_talk);
    QCCL_TRY(const auto session, prove(channel, endpoint, secret, claim, attempt));
    if (!session) return std::optional<AuthenticatedChannel>();
    return std::optional<AuthenticatedChannel>({std::move(channel), *session});
}

// ---- Member of the rendezvous

using namespace std::chrono_literals;

// The server drops peers that it has not authenticated yet when too many come at once; a rank that
// was dropped tries again.
static constexpr int most_attempts = 16;
static constexpr auto first_pause = 10ms;
static constexpr auto longest_pause = 1s;
// Pause while no server is there yet: the most time that an early rank loses.
static constexpr auto longest_wait = 250ms;
// Of several addresses, one that leads nowhere costs this much first, and more in later turns.
static constexpr auto first_try = 100ms;
static constexpr auto longest_at_one_endpoint = 16s;
static constexpr auto longest_with_strangers = 15s;
static constexpr auto longest_request = 1s;
// The server answers `ask` at once, unless it is itself stuck.
static constexpr auto answer_time = 1s;

namespace {

class RendezvousClient final : public Bootstrap {
public:
    RendezvousClient(AuthenticatedChannel introduced, const Endpoint &endpoint, const Claim &claim,
                     const RendezvousOptions &options)
        : channel_(std::move(introduced.channel)), session_(introduced.session),
          endpoint_(endpoint), claim_(claim), options_(options) {}
    ~RendezvousClient() override;
    RendezvousClient(const RendezvousClient &) = delete;
    RendezvousClient &operator=(const RendezvousClient &) = delete;

    uint32_t rank() const override { return claim_.rank; }
    uint32_t size() const override { return claim_.size; }
    std::string means() const override { return means_ + ", rendezvous at " + text(endpoint_); }
    Done all_gather(const void *mine, void *all, size_t bytes) override;
    Done check() override;

    // Waits for the server's answer to the proof. Returns nothing if the server hung up without
    // one.
    Result<std::optional<Done>> receive_outcome(JoinAttempt &attempt);
    // `means`: where the address and the secret of the rendezvous come from, for the log.
    Done wait_until_complete(const char *means);

private:
    struct Message {
        FrameKind kind{};
        std::vector<std::byte> payload;
    };

    Done exchange(const void *mine, void *all, size_t bytes);
    // Waits for the first message of this kind and returns its payload. Returns an error if the
    // server reports a failure, or if the message does not come in time.
    Result<std::vector<std::byte>> await(FrameKind kind);
    Result<std::optional<Message>> receive();
    Done take(const Message &message, bool is_last_answer);
    void send(FrameKind kind, std::span<const std::byte> payload);
    Done is_wanted();
    Error server_lost() const;

    Channel channel_;
    Session session_;
    const Endpoint endpoint_;
    const Claim claim_;
    const RendezvousOptions options_;
    std::string means_;
    int32_t host_rank_ = Error::no_rank;
    bool has_given_up_ = false;
    std::optional<Error> failure_; // after an error the other ranks' progress is unknown
};

RendezvousClient::~RendezvousClient() {
    // A forked child that cleans up must not end its parent's connection.
    if (static_cast<uint32_t>(getpid()) != claim_.process) {
        channel_.forget();
        return;
    }
    send(has_given_up_ ? FrameKind::give_up : FrameKind::leave, {});
    (void)channel_.flush();
}

void RendezvousClient::send(FrameKind kind, std::span<const std::byte> payload) {
    const Sealed sealed = session_.seal(kind, payload);
    channel_.queue(std::as_bytes(std::span(&sealed.head, 1)));
    channel_.queue(payload);
    channel_.queue(sealed.tag);
}

Done RendezvousClient::is_wanted() {
    const Done wanted = options_.cancel_check ? options_.cancel_check() : Done();
    if (!wanted) has_given_up_ = true;
    return wanted;
}

Error RendezvousClient::server_lost() const {
    if (host_rank_ == Error::no_rank)
        return Error::make(
            Code::peer_lost,
            "the process that made the unique id and served the rendezvous at %s died "
            "or left",
            text(endpoint_).c_str());
    return Error::make(Code::peer_lost,
                       "rank %d, whose process served the rendezvous at %s, died or left",
                       host_rank_, text(endpoint_).c_str())
        .at_rank(host_rank_);
}

Result<std::optional<RendezvousClient::Message>> RendezvousClient::receive() {
    // Reads even if sending fails: the reason may still wait to be read.
    const bool is_sound = channel_.flush();
    for (;;) {
        QCCL_TRY(const auto frame, session_.open(channel_.held(), most_gathered_bytes));
        if (frame) {
            Message message{frame->kind, {frame->payload.begin(), frame->payload.end()}};
            channel_.drop(frame->whole_bytes);
            return std::optional<Message>(std::move(message));
        }
        const auto filled = channel_.fill(Session::wanted_bytes(channel_.held()));
        if (filled == Channel::Filled::gone) return server_lost();
        if (filled == Channel::Filled::not_yet) break;
    }
    if (!is_sound) return server_lost();
    return std::optional<Message>();
}

Done RendezvousClient::take(const Message &message, bool is_last_answer) {
    const uint32_t size = claim_.size;
    switch (message.kind) {
    case FrameKind::accepted:
    case FrameKind::host:
        if (message.payload.size() == sizeof host_rank_)
            std::memcpy(&host_rank_, message.payload.data(), sizeof host_rank_);
        return {};
    case FrameKind::failed: return to_error(message.payload);
    case FrameKind::missing: {
        const Error answer = to_error(message.payload);
        if (is_last_answer) {
            has_given_up_ = true;
            return late_error({answer.rank, answer.text}, size, options_.timeout);
        }
        const double seconds = std::chrono::duration<double>(options_.warn_after).count();
        const Error sentence = Error::make(Code::timeout, "waiting for %.160s of %u (%g s so far)",
                                           answer.text, size, seconds);
        if (options_.warn) options_.warn(sentence.text);
        return {};
    }
    default:
        return Error::make(Code::internal_error, "the rendezvous sent message %u out of turn",
                           static_cast<uint32_t>(message.kind));
    }
}

Result<std::vector<std::byte>> RendezvousClient::await(FrameKind kind) {
    const TimePoint start = Clock::now();
    const TimePoint deadline = deadline_after(start, options_.timeout);
    TimePoint warn_at = deadline_after(start, options_.warn_after);
    TimePoint last_call = deadline; // after the final request: when to stop waiting
    bool is_ending = false;
    for (;;) {
        QCCL_TRY(auto message, receive());
        if (message && message->kind == kind) return std::move(message->payload);
        if (message) {
            QCCL_TRY(take(*message, is_ending));
            continue;
        }
        if (const Done wanted = is_wanted(); !wanted) return wanted.error();
        const TimePoint now = Clock::now();
        if (is_ending && now >= last_call) {
            has_given_up_ = true;
            return Error::make(Code::timeout, "the rendezvous at %s gives no answer",
                               text(endpoint_).c_str())
                .at_rank(host_rank_);
        }
        if (!is_ending && now >= std::min(deadline, warn_at)) {
            is_ending = now >= deadline;
            send(is_ending ? FrameKind::ask : FrameKind::wonder, {});
            if (is_ending) last_call = now + answer_time;
            warn_at = TimePoint::max();
            continue;
        }
        wait_until(channel_, next_look(now, std::min(warn_at, last_call), options_.cancel_check));
    }
}

Result<std::optional<Done>> RendezvousClient::receive_outcome(JoinAttempt &attempt) {
    for (;;) {
        auto message = receive();
        if (!message && message.error().code == Code::peer_lost) return std::optional<Done>();
        if (!message) return message.error();
        if (*message) return std::optional<Done>(take(**message, false));
        if (attempt.is_over()) return attempt.no_answer();
        attempt.warn_if_late(JoinAttempt::silence);
        wait_until(channel_, attempt.next_look());
    }
}

Done RendezvousClient::wait_until_complete(const char *means) {
    means_ = means;
    return outcome(await(FrameKind::complete));
}

Done RendezvousClient::all_gather(const void *mine, void *all, size_t bytes) {
    if (failure_) return *failure_;
    const Done done = exchange(mine, all, bytes);
    if (!done) failure_ = done.error();
    return done;
}

// The only message that comes unasked is that of a failure.
Done RendezvousClient::check() {
    while (!failure_) {
        QCCL_TRY(is_wanted());
        const auto message = receive();
        if (message && !*message) return {};
        const Done heard = message ? take(**message, false) : outcome(message);
        if (!heard) failure_ = heard.error();
    }
    return *failure_;
}

Done RendezvousClient::exchange(const void *mine, void *all, size_t bytes) {
    if (bytes > most_contributed_bytes || bytes * claim_.size > most_gathered_bytes)
        return invalid_argument("%zu bytes from each of %u ranks are too many for the rendezvous",
                                bytes, claim_.size);
    send(FrameKind::contribute, {static_cast<const std::byte *>(mine), bytes});
    QCCL_TRY(const auto gathered, await(FrameKind::result));
    if (gathered.size() != bytes * claim_.size)
        return Error::make(Code::internal_error, "the rendezvous sent %zu bytes in place of %zu",
                           gathered.size(), bytes * claim_.size);
    if (bytes > 0) std::memcpy(all, gathered.data(), gathered.size());
    return {};
}

// Waits for the answer of a server that has proven the secret. Returns null if the server hung up
// without an answer. An error is the server's answer and final.
Result<std::unique_ptr<RendezvousClient>> enter(AuthenticatedChannel introduced,
                                                const Endpoint &endpoint, const Claim &claim,
                                                const RendezvousOptions &options,
                                                JoinAttempt &attempt) {
    attempt.begin_try(0ns);
    auto client =
        std::make_unique<RendezvousClient>(std::move(introduced), endpoint, claim, options);
    QCCL_TRY(const auto outcome, client->receive_outcome(attempt));
    if (!outcome) return std::unique_ptr<RendezvousClient>();
    QCCL_TRY(Done(*outcome));
    return client;
}

// The result of trying every endpoint once.
struct ConnectLoopResult {
    std::unique_ptr<RendezvousClient> client;
    std::optional<Error> closed; // of the first endpoint without a server, or with another one
    bool may_open = false;       // one endpoint hung up, or was slow
    std::string stranger; // the obstacle if a listener was another program or job; empty: none was
};

Result<ConnectLoopResult> try_endpoints(const std::vector<Endpoint> &endpoints,
                                        const Secret &secret, const Claim &claim,
                                        const RendezvousOptions &options, JoinAttempt &attempt,
                                        std::chrono::nanoseconds longest_try) {
    ConnectLoopResult result;
    for (const Endpoint &endpoint : endpoints) {
        attempt.begin_try(longest_try);
        auto introduced = introduce(endpoint, secret, claim, attempt);
        if (introduced && *introduced) {
            QCCL_TRY(result.client,
                     enter(std::move(**introduced), endpoint, claim, options, attempt));
            if (result.client) return result;
        }
        if (introduced) {
            attempt.note(JoinAttempt::silence);
            result.may_open = true;
            continue;
        }
        const Error &problem = introduced.error();
        const bool is_slow = problem.code == Code::timeout && !attempt.is_over();
        if (!is_slow && problem.code != Code::peer_lost) return problem;
        result.may_open |= is_slow;
        if (!is_slow && attempt.has_met_stranger()) result.stranger = attempt.obstacle();
        if (!result.closed) result.closed = problem;
    }
    return result;
}

} // namespace

Result<std::unique_ptr<Bootstrap>> join_rendezvous(const IdFields &fields, uint32_t size,
                                                   uint32_t rank, const RendezvousOptions &options,
                                                   Patience patience) {
    const bool is_patient = patience == Patience::until_timeout;
    const std::vector<Endpoint> endpoints = reachable(fields.endpoints);
    if (endpoints.empty())
        return Error::make(Code::system_error, "no interface of this machine leads to %s",
                           text(fields.endpoints).c_str());
    JoinAttempt join(endpoints, options, Clock::now());
    const Claim claim = make_claim(rank, size);
    std::chrono::milliseconds pause = first_pause;
    std::chrono::nanoseconds longest_try = first_try;
    std::optional<TimePoint> strangers_since;
    for (int attempt = 0; (attempt < most_attempts || is_patient) && !join.is_over(); attempt++) {
        QCCL_TRY(auto tried, try_endpoints(endpoints, fields.secret, claim, options, join,
                                           endpoints.size() > 1 ? longest_try : 0ns));
        if (tried.client) {
            QCCL_TRY(tried.client->wait_until_complete(is_patient ? "launcher's variables"
                                                                  : "unique id"));
            return std::unique_ptr<Bootstrap>(std::move(tried.client));
        }
        // The previous rendezvous may need a moment to leave; another program does not leave.
        if (tried.stranger.empty() || !strangers_since)
            strangers_since = tried.stranger.empty() ? std::nullopt : std::optional(Clock::now());
        const bool is_vain =
            strangers_since && Clock::now() >= *strangers_since + longest_with_strangers;
        if (tried.closed && !tried.may_open && (!is_patient || is_vain))
            return is_patient ? join.no_way(tried.stranger) : *tried.closed;
        join.warn_if_late();
        QCCL_TRY(join.sleep_until(Clock::now() + pause));
        pause = std::min<std::chrono::milliseconds>(pause * 2,
                                                    is_patient ? longest_wait : longest_pause);
        longest_try = std::min<std::chrono::nanoseconds>(longest_try * 2, longest_at_one_endpoint);
    }
    QCCL_TRY(join.is_wanted());
    if (is_patient) return join.no_way();
    return Error::make(Code::timeout, "the rendezvous at %s hangs up on every attempt",
                       text(endpoints).c_str());
}

Done ask_for_room(const IdFields &fields, uint32_t size, const RendezvousOptions &options) {
    RendezvousOptions brief = options;
    brief.timeout = longest_request;
    JoinAttempt attempt(fields.endpoints, brief, Clock::now(), true);
    auto tried = try_endpoints(fields.endpoints, fields.secret, make_claim(0, size), options,
                               attempt, first_try);
    if (!tried && attempt.is_over()) return {}; // another program, which does not answer
    QCCL_TRY(outcome(tried));
    if (!tried->client) return {};
    // This process has joined before the other rank 0, which is refused now.
    QCCL_TRY(tried->client->wait_until_complete("launcher's variables"));
    return Error::make(Code::remote_error, "two processes are rank 0 of %u", size).at_rank(0);
}

Result<std::unique_ptr<Bootstrap>> join_unique_id(const UniqueId &id, uint32_t size, uint32_t rank,
                                                  const RendezvousOptions &options) {
    QCCL_TRY(prepare_secrets());
    QCCL_TRY(const IdFields fields, unpack(id));
    return join_rendezvous(fields, size, rank, options, Patience::none);
}

} // namespace qccl
