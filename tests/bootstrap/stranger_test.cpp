// Tests the bootstrap against processes that break the protocol: garbage, cut-off messages,
// silence, crowds, replays, wrong secrets, other versions, impostors. While each of them is active,
// three honest ranks meet as if they were alone.
#include "tests/kit/open_descriptors.hpp"
#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous_protocol.hpp"

#include <atomic>
#include <cstring>

#include <poll.h>
#include <sodium.h>
#include <unistd.h>

using namespace kit;

namespace {

// A TCP connection of a process that breaks the protocol.
class RawConnection {
public:
    explicit RawConnection(const Endpoint &endpoint) {
        const SocketAddress address = to_socket_address(endpoint);
        fd_ = socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        is_connected_ = fd_ >= 0 && connect(fd_, address.get(), address.bytes) == 0;
    }
    explicit RawConnection(int fd) : fd_(fd), is_connected_(fd >= 0) {}
    ~RawConnection() {
        if (fd_ >= 0) close(fd_);
    }
    RawConnection(RawConnection &&other) noexcept
        : fd_(std::exchange(other.fd_, -1)), is_connected_(other.is_connected_) {}
    RawConnection &operator=(RawConnection &&) = delete;

    bool is_connected() const { return is_connected_; }
    template <class T> bool send(const T &value, size_t bytes = sizeof(T)) {
        return ::send(fd_, &value, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
    }
    // Returns false if the other end hung up or five seconds passed.
    template <class T> bool receive(T &value) {
        auto *to = reinterpret_cast<char *>(&value);
        for (size_t got = 0; got < sizeof(T);) {
            pollfd one{fd_, POLLIN, 0};
            if (poll(&one, 1, 5000) <= 0) return false;
            const ssize_t n = recv(fd_, to + got, sizeof(T) - got, 0);
            if (n <= 0) return false;
            got += static_cast<size_t>(n);
        }
        return true;
    }
    bool is_hung_up_on() {
        pollfd one{fd_, POLLIN, 0};
        char byte;
        return poll(&one, 1, 5000) > 0 && recv(fd_, &byte, 1, 0) <= 0;
    }

private:
    int fd_ = -1;
    bool is_connected_ = false;
};

} // namespace

static IdFields fields_of(const UniqueId &id) {
    const auto fields = unpack(id);
    CHECK_OK(fields);
    return *fields;
}

#define ON_EITHER(test) QTEST(test<AddressFamily::ipv4>), QTEST(test<AddressFamily::ipv6>)

static void check_three_meet(const UniqueId &id, double within_seconds = 2) {
    const Timer timer;
    for (const Done &done : crowd(3, [&](uint32_t rank) { return join_and_exchange(id, 3, rank); }))
        CHECK_OK(done);
    CHECK(timer.seconds() < within_seconds);
}

static void ids_survive_packing_and_nothing_else() {
    IdFields fields;
    fields.endpoints = {{AddressFamily::ipv6, 4711, {}}};
    for (size_t i = 0; i < 16; i++)
        fields.endpoints[0].address[i] = static_cast<std::byte>(0xf0 + i);
    randombytes_buf(fields.secret.data(), fields.secret.size());
    const UniqueId id = pack(fields);
    const IdFields again = fields_of(id);
    CHECK(again.secret == fields.secret && again.endpoints[0].port == 4711);
    CHECK(again.endpoints[0].is_same_host(fields.endpoints[0]));
    CHECK_EQ(text(again.endpoints), "[f0f1:f2f3:f4f5:f6f7:f8f9:fafb:fcfd:feff]:4711");

    for (size_t i = 0; i < id.size(); i++) {
        UniqueId bad = id;
        bad[i] ^= std::byte{0x10};
        CHECK(!unpack(bad));
    }
    UniqueId newer = id;
    newer[8] = std::byte{1};
    CHECK(contains(join_and_exchange(newer, 1, 0), "has version 1, this library knows version 2"));
    CHECK(contains(join_and_exchange(UniqueId{}, 1, 0), "was not made by QCCL"));
    newer = id;
    newer[100] = std::byte{1};
    CHECK(contains(join_and_exchange(newer, 1, 0), "is damaged"));
}

template <AddressFamily family> static void garbage_is_turned_away() {
    const UniqueId id = make_id(options_at(family));
    const Endpoint endpoint = fields_of(id).endpoints.front();
    std::array<unsigned char, 4096> noise;
    for (int i = 0; i < 20; i++) {
        randombytes_buf(noise.data(), noise.size());
        RawConnection stranger(endpoint);
        (void)stranger.send(noise);
        CHECK(stranger.is_hung_up_on());
    }
    RawConnection browser(endpoint);
    const char request[] =
        "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a port scanner\r\n\r\n";
    (void)browser.send(request);
    CHECK(browser.is_hung_up_on());
    check_three_meet(id);
}

// A rank's half of the handshake as bytes, as far as the caller takes it.
struct Handshake {
    Transcript seen{make_hello(), {}};

    bool hear_challenge(RawConnection &connection) {
        return connection.send(seen.hello) && connection.receive(seen.challenge);
    }
    Proof proof(uint32_t rank, uint32_t size, const Secret &secret) const {
        return make_proof(seen, make_claim(rank, size), secret);
    }
};

static void a_connection_may_break_at_every_byte() {
    const UniqueId id = make_id();
    const IdFields fields = fields_of(id);
    for (size_t bytes = 0; bytes < sizeof(Hello); bytes++) {
        RawConnection half(fields.endpoints.front());
        CHECK(half.send(make_hello(), bytes));
    }
    for (size_t bytes = 0; bytes < sizeof(Proof); bytes++) {
        RawConnection half(fields.endpoints.front());
        Handshake handshake;
        CHECK(handshake.hear_challenge(half));
        CHECK(half.send(handshake.proof(1, 3, fields.secret), bytes));
    }
    check_three_meet(id);
}

static void a_wrong_secret_is_turned_away() {
    const UniqueId id = make_id();
    IdFields fields = fields_of(id);
    fields.secret[7] ^= std::byte{1};
    // A rank with the wrong secret sees that the server does not hold the same secret.
    const Done done = join_and_exchange(pack(fields), 3, 1);
    CHECK(contains(done, "does not hold the secret of the unique id"));
    // A rank that ignores this is turned away.
    RawConnection stranger(fields.endpoints.front());
    Handshake handshake;
    CHECK(handshake.hear_challenge(stranger));
    CHECK(!is_genuine(handshake.seen, fields.secret));
    CHECK(stranger.send(handshake.proof(1, 3, fields.secret)));
    CHECK(stranger.is_hung_up_on());
    check_three_meet(id);
}

static void a_claim_cannot_be_changed() {
    const UniqueId id = make_id();
    const IdFields fields = fields_of(id);
    for (size_t i = 0; i < sizeof(Proof); i++) {
        RawConnection stranger(fields.endpoints.front());
        Handshake handshake;
        CHECK(handshake.hear_challenge(stranger));
        auto bytes = std::bit_cast<std::array<std::byte, sizeof(Proof)>>(
            handshake.proof(1, 3, fields.secret));
        bytes[i] ^= std::byte{4};
        CHECK(stranger.send(bytes));
        CHECK(stranger.is_hung_up_on());
    }
    check_three_meet(id);
}

// A replay of what an honest rank sent is turned away, both before and after that rank has joined.
template <AddressFamily family> static void a_replay_is_turned_away() {
    const UniqueId id = make_id(options_at(family));
    const IdFields fields = fields_of(id);
    RawConnection honest(fields.endpoints.front()), early(fields.endpoints.front()),
        late(fields.endpoints.front());
    Handshake handshake;
    CHECK(handshake.hear_challenge(honest));
    const Proof proof = handshake.proof(2, 3, fields.secret);
    const auto replay = [&](RawConnection &thief) {
        Challenge other;
        CHECK(thief.send(handshake.seen.hello) && thief.receive(other));
        CHECK(other.nonce != handshake.seen.challenge.nonce);
        CHECK(thief.send(proof));
        return thief.is_hung_up_on();
    };
    CHECK(replay(early));
    CHECK(honest.send(proof));
    FrameHead accepted;
    CHECK(honest.receive(accepted) && accepted.kind == FrameKind::accepted);
    CHECK(replay(late));
    // A second rank 2 would have failed the job, but here only the departure of the honest one
    // does.
    const auto done = crowd(1, [&](uint32_t) {
        std::thread leaver([&honest] {
            std::this_thread::sleep_for(50ms);
            const RawConnection gone(std::move(honest));
        });
        const Done mine = join_and_exchange(id, 3, 0);
        leaver.join();
        return mine;
    });
    check_all_refused(done, Code::peer_lost, 2, "rank 2 (process ");
}

static void another_version_is_told_ours() {
    const UniqueId id = make_id();
    Hello hello = make_hello();
    hello.greeting.version = 77;
    RawConnection newer(fields_of(id).endpoints.front());
    Greeting answer;
    CHECK(newer.send(hello) && newer.receive(answer));
    CHECK_EQ(answer.version, protocol_version);
    check_three_meet(id);
}

template <AddressFamily family> static void silent_crowds_keep_nobody_out() {
    const UniqueId id = make_id(options_at(family));
    const Endpoint endpoint = fields_of(id).endpoints.front();
    std::vector<RawConnection> silent;
    const Timer timer;
    for (int i = 0; i < 200; i++) silent.emplace_back(endpoint);
    for (RawConnection &one : silent) CHECK(one.is_connected());
    // The server closed the oldest connection to make room for the newest, long before its timeout.
    CHECK(silent.front().is_hung_up_on());
    CHECK(timer.seconds() < 1.5);
    check_three_meet(id);
}

template <AddressFamily family> static void a_thousand_that_dribble_keep_nobody_out() {
    const size_t most = make_room_for_strangers();

    const UniqueId id = make_id(options_at(family));
    const Endpoint endpoint = fields_of(id).endpoints.front();
    std::atomic<bool> is_over = false;
    std::thread crowd_of_strangers([&] {
        std::vector<std::unique_ptr<RawConnection>> strangers(most);
        const Hello hello = make_hello();
        for (size_t byte = 0; !is_over; byte++) {
            // Connections that were turned away come again, a hundred in each turn.
            for (int again = 100; auto &one : strangers) {
                const auto &next = reinterpret_cast<const char *>(&hello)[byte % sizeof hello];
                if (one && one->send(next)) continue;
                if (again-- > 0) one = std::make_unique<RawConnection>(endpoint);
            }
            std::this_thread::sleep_for(20ms);
        }
    });
    std::this_thread::sleep_for(300ms);
    const auto done = crowd(3, [&](uint32_t rank) { return join_and_exchange(id, 3, rank); });
    is_over = true;
    crowd_of_strangers.join();
    for (const Done &one : done) CHECK_OK(one);
}

template <AddressFamily family> static void a_slow_stranger_is_cut_off() {
    const UniqueId id = make_id(options_at(family));
    const Hello hello = make_hello();
    RawConnection slow(fields_of(id).endpoints.front());
    const Timer timer;
    for (size_t byte = 0; slow.send(reinterpret_cast<const char *>(&hello)[byte], 1); byte++) {
        CHECK(timer.seconds() < 5);
        std::this_thread::sleep_for(250ms);
    }
    CHECK(timer.seconds() * patience() > 2.5);
    check_three_meet(id);
}

// A member that sends a damaged stream is named, whatever the stream contains.
static void a_member_that_breaks_the_protocol_is_named() {
    const auto misbehave = [](const std::function<void(RawConnection &, Session &)> &deed) {
        const UniqueId id = make_id();
        const IdFields fields = fields_of(id);
        RawConnection member(fields.endpoints.front());
        Handshake handshake;
        CHECK(handshake.hear_challenge(member));
        CHECK(member.send(handshake.proof(1, 3, fields.secret)));
        Session session(session_key(handshake.seen, fields.secret), Session::Side::rank);
        FrameHead accepted;
        CHECK(member.receive(accepted));
        deed(member, session);
        check_all_refused({join_and_exchange(id, 3, 0)}, Code::peer_lost, 1, "rank 1 (process ");
    };
    misbehave([](RawConnection &member, Session &) { (void)member.send(std::array<char, 64>{}); });
    misbehave([](RawConnection &member, Session &session) { // a right frame with one bit changed
        Sealed ask = session.seal(FrameKind::ask, {});
        ask.tag[3] ^= std::byte{1};
        (void)member.send(ask);
    });
    misbehave([](RawConnection &member, Session &session) { // the same frame twice
        const Sealed ask = session.seal(FrameKind::ask, {});
        (void)member.send(ask);
        (void)member.send(ask);
    });
    misbehave([](RawConnection &member, Session &session) { // a frame that is too large
        Sealed huge = session.seal(FrameKind::contribute, {});
        huge.head.bytes = 0xffffffff;
        (void)member.send(huge);
    });
    misbehave([](RawConnection &member, Session &session) { // a frame that only the server may send
        (void)member.send(session.seal(FrameKind::complete, {}));
    });
}

// Lets one rank try to join while an impostor listens in place of the server and runs `deed` on
// each connection. Returns the result of that rank.
static Done join_impostor(const std::function<void(RawConnection &, const Secret &)> &deed,
                          std::chrono::nanoseconds timeout = 30s) {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    IdFields fields;
    SocketAddress address = to_socket_address(*parse_address("127.0.0.1"));
    CHECK(bind(listener, address.get(), address.bytes) == 0 && listen(listener, 64) == 0);
    getsockname(listener, address.get(), &address.bytes);
    fields.endpoints = {to_endpoint(address.get())};
    std::thread impostor([&] {
        for (int fd; (fd = accept(listener, nullptr, nullptr)) >= 0;) {
            RawConnection guest(fd);
            deed(guest, fields.secret);
        }
    });
    const Done done = join_and_exchange(pack(fields), 2, 0, options(timeout));
    shutdown(listener, SHUT_RDWR);
    impostor.join();
    close(listener);
    return done;
}

static void an_impostor_is_not_believed() {
    const auto answer = [](RawConnection &guest, const Secret &secret, uint16_t version,
                           bool is_echo) {
        Hello hello;
        if (!guest.receive(hello)) return;
        Challenge challenge = make_challenge(hello, secret);
        challenge.greeting.version = version;
        if (is_echo) challenge.greeting = hello.greeting;
        (void)guest.send(challenge);
        (void)guest.is_hung_up_on();
    };
    CHECK(contains(join_impostor([&](RawConnection &guest, const Secret &) {
                       answer(guest, Secret{std::byte{1}}, protocol_version, false);
                   }),
                   "does not hold the secret"));
    CHECK(contains(join_impostor([&](RawConnection &guest, const Secret &secret) {
                       answer(guest, secret, protocol_version, true);
                   }),
                   "does not hold the secret"));
    CHECK(contains(join_impostor([&](RawConnection &guest, const Secret &secret) {
                       answer(guest, secret, 9, false);
                   }),
                   "speaks version 9, this library version 1"));
    CHECK(contains(join_impostor([](RawConnection &guest, const Secret &) {
                       (void)guest.send(std::array<char, 200>{"220 mail.example.com ESMTP"});
                       (void)guest.is_hung_up_on();
                   }),
                   "does not hold the secret"));
    CHECK(contains(join_impostor([](RawConnection &, const Secret &) {}, 500ms),
                   "hangs up on every attempt"));
    CHECK(contains(join_impostor(
                       [](RawConnection &guest, const Secret &) {
                           Hello hello;
                           (void)guest.receive(hello);
                           (void)guest.is_hung_up_on();
                       },
                       300ms),
                   "gives no answer"));
}

int main() {
    if (sodium_init() < 0) return 1;
    const CMUnitTest tests[] = {
        QTEST(ids_survive_packing_and_nothing_else),
        ON_EITHER(garbage_is_turned_away),
        QTEST(a_connection_may_break_at_every_byte),
        QTEST(a_wrong_secret_is_turned_away),
        QTEST(a_claim_cannot_be_changed),
        ON_EITHER(a_replay_is_turned_away),
        QTEST(another_version_is_told_ours),
        ON_EITHER(silent_crowds_keep_nobody_out),
        ON_EITHER(a_thousand_that_dribble_keep_nobody_out),
        ON_EITHER(a_slow_stranger_is_cut_off),
        QTEST(a_member_that_breaks_the_protocol_is_named),
        QTEST(an_impostor_is_not_believed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
