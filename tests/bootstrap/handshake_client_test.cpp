// Tests introduce() of bootstrap/rendezvous_client: which joining rank the server takes for the
// rank that hosts it, and that a connection ends with its owner, even if a forked child holds a
// copy of it.
#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"

#include <csignal>
#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

using namespace kit;

static IdFields fields_of(const UniqueId &id) {
    const auto fields = unpack(id);
    CHECK_OK(fields);
    return *fields;
}

static void hear(Channel &channel, size_t bytes) {
    const TimePoint deadline = Clock::now() + 5s;
    CHECK(channel.flush());
    while (channel.fill(bytes) == Channel::Filled::not_yet) {
        CHECK(Clock::now() < deadline);
        wait_until(channel, deadline);
    }
    CHECK(channel.held().size() >= bytes);
}

// Performs the handshake of introduce() from a loopback address that the test chooses.
static AuthenticatedChannel introduce_from(std::byte last_of_address, const IdFields &id,
                                           const Claim &claim) {
    Endpoint mine = id.endpoints.front();
    mine.port = 0;
    mine.address[3] = last_of_address;
    const SocketAddress from = to_socket_address(mine),
                        to = to_socket_address(id.endpoints.front());
    auto made = make_socket(mine.family);
    CHECK_OK(made);
    CHECK(bind(made->get(), from.get(), from.bytes) == 0);
    (void)connect(made->get(), to.get(), to.bytes);
    Channel channel(std::move(*made));

    Transcript seen{make_hello(), {}};
    channel.queue(std::as_bytes(std::span(&seen.hello, 1)));
    wait_until(channel, Clock::now() + 5s);
    hear(channel, sizeof seen.challenge);
    std::memcpy(&seen.challenge, channel.held().data(), sizeof seen.challenge);
    channel.drop(sizeof seen.challenge);
    const Proof proof = make_proof(seen, claim, id.secret);
    channel.queue(std::as_bytes(std::span(&proof, 1)));
    return {std::move(channel), Session(session_key(seen, id.secret), Session::Side::rank)};
}

// Returns the rank that the server gives as its host when it accepts such a claim.
static int32_t host_told_to(const Claim &claim, std::byte last_of_address = std::byte{1}) {
    AuthenticatedChannel one = introduce_from(last_of_address, fields_of(make_id()), claim);
    int32_t host = 0;
    hear(one.channel, frame_overhead_bytes + sizeof host);
    const auto frame = one.session.open(one.channel.held(), sizeof host);
    CHECK(frame && *frame && (*frame)->kind == FrameKind::accepted);
    std::memcpy(&host, (*frame)->payload.data(), sizeof host);
    return host;
}

// If such a rank counted as the host, its death would be reported as the server's.
static void who_only_resembles_the_host_is_not_taken_for_it() {
    const Claim mine = make_claim(1, 3);
    CHECK_EQ(host_told_to(mine), 1);
    Claim other = mine;
    other.process++;
    CHECK_EQ(host_told_to(other), Error::no_rank);
    other = mine;
    other.process_namespace++; // the same number in another container
    CHECK_EQ(host_told_to(other), Error::no_rank);
    CHECK_EQ(host_told_to(mine, std::byte{2}), Error::no_rank); // on another machine
}

static void a_forked_child_does_not_keep_a_connection_open() {
    const UniqueId id = make_id();
    pid_t child = -1;
    {
        AuthenticatedChannel member = introduce_from(std::byte{1}, fields_of(id), make_claim(1, 2));
        hear(member.channel, frame_overhead_bytes);
        child = fork();
        if (child == 0)
            for (;;) pause();
    }
    const Done left = join_and_exchange(id, 2, 0, options(3s));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    check_all_refused({left}, Code::peer_lost, 1, "died");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(who_only_resembles_the_host_is_not_taken_for_it),
        QTEST(a_forked_child_does_not_keep_a_connection_open),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
