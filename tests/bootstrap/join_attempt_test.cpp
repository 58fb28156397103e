// Tests JoinAttempt of bootstrap/rendezvous_client: a rank that cannot reach the rendezvous warns
// once after a while, with the address and the cause, and its final error says the same.
#include "tests/kit/rendezvous_kit.hpp"

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/rendezvous_protocol.hpp"

#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

using namespace kit;

namespace {

// A listening socket on the loopback interface in place of the server.
class Door {
public:
    explicit Door(int backlog) {
        auto made = make_socket(AddressFamily::ipv4);
        CHECK_OK(made);
        listener_ = std::move(*made);
        SocketAddress address = to_socket_address(*parse_address("127.0.0.1"));
        CHECK(bind(listener_.get(), address.get(), address.bytes) == 0);
        CHECK(listen(listener_.get(), backlog) == 0);
        CHECK(getsockname(listener_.get(), address.get(), &address.bytes) == 0);
        fields_.endpoints = {to_endpoint(address.get())};
    }

    const IdFields &fields() const { return fields_; }
    std::string address() const { return text(fields_.endpoints.front()); }
    void close() { listener_ = Socket(); }

    // Fills the backlog, so that the kernel drops new connections as a firewall does.
    void crowd_up() {
        const SocketAddress address = to_socket_address(fields_.endpoints.front());
        for (int i = 0; i < 64; i++) {
            auto made = make_socket(AddressFamily::ipv4);
            CHECK_OK(made);
            (void)connect(made->get(), address.get(), address.bytes);
            pollfd one{made->get(), POLLOUT, 0};
            const bool is_in = poll(&one, 1, 100) > 0;
            crowd_.push_back(std::move(*made));
            if (!is_in) return;
        }
        throw qtest::Failure{"the kernel lets everybody in"};
    }

    // Returns the next connection, or a closed socket after five seconds.
    Socket guest() {
        pollfd one{listener_.get(), POLLIN, 0};
        if (poll(&one, 1, 5000) <= 0) return Socket();
        return Socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    }

private:
    Socket listener_;
    IdFields fields_;
    std::vector<Socket> crowd_;
};

struct Attempt {
    Done done;
    std::vector<std::string> warnings;
    double seconds = 0;
};

} // namespace

static Attempt try_to_join(const Door &door) {
    Attempt attempt;
    RendezvousOptions mine = options(600ms);
    mine.warn_after = 200ms;
    mine.warn = [&](const char *sentence) { attempt.warnings.push_back(sentence); };
    const Timer timer;
    attempt.done = join_and_exchange(pack(door.fields()), 2, 1, mine);
    attempt.seconds = timer.seconds();
    return attempt;
}

static void check_told(const Attempt &attempt, const std::string &warning,
                       const std::string &ending) {
    CHECK_EQ(attempt.warnings.size(), size_t{1});
    CHECK_EQ(attempt.warnings[0], warning + " (0.2 s so far)");
    CHECK(!attempt.done);
    CHECK(attempt.done.error().code == Code::timeout);
    CHECK_EQ(std::string(attempt.done.error().text), ending);
    CHECK(attempt.seconds * patience() > 0.55 && attempt.seconds < 3);
}

static void a_rank_that_is_not_let_in_says_so() {
    Door door(0);
    door.crowd_up();
    check_told(try_to_join(door),
               "cannot reach the rendezvous at " + door.address() +
                   " yet: Operation now in progress",
               "cannot reach the rendezvous at " + door.address() +
                   ": Connection timed out; has the process that made the unique id ended?");
}

static void a_rank_that_gets_no_answer_says_so() {
    const Door door(8); // the kernel accepts, but no server reads
    const std::string where = "the rendezvous at " + door.address();
    check_told(try_to_join(door), "cannot reach " + where + " yet: it gives no answer",
               where + " gives no answer within 0.6 s");
}

static void a_rank_that_gets_no_verdict_says_so() {
    Door door(8);
    Attempt attempt;
    std::thread rank([&] { attempt = try_to_join(door); });
    {
        Channel guest(door.guest());
        const auto hear = [&guest](auto &message) {
            pollfd one{guest.descriptor(), POLLIN, 0};
            return poll(&one, 1, 5000) > 0 && recv(guest.descriptor(), &message, sizeof message,
                                                   MSG_WAITALL) == sizeof message;
        };
        Hello hello;
        Proof proof;
        if (hear(hello)) {
            const Challenge challenge = make_challenge(hello, door.fields().secret);
            guest.queue(std::as_bytes(std::span(&challenge, 1)));
            (void)(guest.flush() && hear(proof));
        }
        rank.join();
    }
    const std::string where = "the rendezvous at " + door.address();
    check_told(attempt, "cannot reach " + where + " yet: it gives no answer",
               where + " gives no answer within 0.6 s");
}

static void a_rank_that_is_hung_up_on_says_so() {
    Door door(8);
    Attempt attempt;
    std::thread rank([&] {
        attempt = try_to_join(door);
        door.close();
    });
    while (door.guest().is_open()) {}
    rank.join();
    const std::string where = "the rendezvous at " + door.address();
    check_told(attempt, "cannot reach " + where + " yet: it gives no answer",
               where + " hangs up on every attempt");
}

// A refused connection will not succeed by waiting, so the error comes at once.
static void who_is_refused_is_told_at_once() {
    Door door(8);
    door.close();
    const Attempt attempt = try_to_join(door);
    CHECK(attempt.warnings.empty());
    CHECK(contains(attempt.done,
                   "cannot reach the rendezvous at " + door.address() + ": Connection refused"));
    CHECK(attempt.seconds < 0.2);
}

int main() {
    if (sodium_init() < 0) return 1;
    const CMUnitTest tests[] = {
        QTEST(a_rank_that_is_not_let_in_says_so),   QTEST(a_rank_that_gets_no_answer_says_so),
        QTEST(a_rank_that_gets_no_verdict_says_so), QTEST(a_rank_that_is_hung_up_on_says_so),
        QTEST(who_is_refused_is_told_at_once),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
