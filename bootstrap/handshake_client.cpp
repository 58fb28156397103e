// Connects to a rendezvous server and performs the rank's side of the handshake.
#include "bootstrap/handshake_client.hpp"

#include <cerrno>
#include <cstring>

#include <poll.h>

namespace qccl {

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
        attempt.tell();
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
            attempt.tell(strerror(EINPROGRESS));
    }
    if (problem == 0) return Channel(std::move(socket));
    attempt.note(strerror(problem));
    return Error::make(problem == ETIMEDOUT ? Code::timeout : Code::peer_lost,
                       "cannot reach the rendezvous at %s: %s; has the process that made the "
                       "unique id ended?",
                       text(endpoint).c_str(), strerror(problem));
}

static Error other_version(const Endpoint &endpoint, uint16_t version) {
    return Error::make(Code::invalid_argument,
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
    const Greeted greeted = judge_server(seen.challenge.greeting);
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

} // namespace qccl
