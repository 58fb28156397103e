// Tests KeepaliveConnector of lib/fault/liveness: ranks of several hosts find each other at one of
// many addresses, over IPv4 and IPv6, whatever strangers do at their ports.
#include "tests/kit/open_descriptors.hpp"
#include "tests/kit/qtest.hpp"

#include "fault/liveness.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <netinet/tcp.h>

using namespace qccl;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

sockaddr_storage address_of(const char *text) {
    InetAddress address;
    if (inet_pton(AF_INET6, text, &address.ipv6.sin6_addr) == 1) {
        address.any.sa_family = AF_INET6;
    } else {
        CHECK_EQ(inet_pton(AF_INET, text, &address.ipv4.sin_addr), 1);
        address.any.sa_family = AF_INET;
    }
    sockaddr_storage storage{};
    std::memcpy(&storage, &address.ipv6, sizeof address.ipv6);
    return storage;
}

KeepaliveListener port_at(const std::vector<const char *> &addresses) {
    std::vector<sockaddr_storage> storages;
    for (const char *const address : addresses) storages.push_back(address_of(address));
    auto port = KeepaliveListener::open(storages);
    CHECK_OK(port);
    return std::move(*port);
}

// Each rank connects to the next, as the ranks of a communicator do.
void check_ring(const std::vector<KeepaliveListener> &ports, Clock::duration within = 5s) {
    const auto size = static_cast<uint32_t>(ports.size());
    std::vector<FileDescriptor> forward(size), backward(size);
    std::vector<std::string> said(size);
    std::vector<std::thread> ranks;
    for (uint32_t rank = 0; rank < size; rank++)
        ranks.emplace_back([&, rank] {
            KeepaliveConnector meeting(ports[rank], rank);
            const uint32_t next = (rank + 1) % size;
            meeting.call(ports[next].contact(), next);
            meeting.expect((rank + size - 1) % size);
            const Done done = meeting.run(Clock::now() + within);
            if (!done) said[rank] = done.error().text;
            forward[rank] = meeting.take_called();
            backward[rank] = meeting.take_expected();
        });
    for (std::thread &rank : ranks) rank.join();
    for (uint32_t rank = 0; rank < size; rank++) {
        CHECK_EQ(said[rank], std::string());
        const auto byte = static_cast<char>('a' + rank);
        CHECK_EQ(send(forward[rank].number(), &byte, 1, 0), 1);
        pollfd one{backward[(rank + 1) % size].number(), POLLIN, 0};
        CHECK_EQ(poll(&one, 1, 5000), 1);
        char heard = 0;
        CHECK_EQ(recv(one.fd, &heard, 1, 0), 1);
        CHECK_EQ(heard, byte);
    }
}

void ranks_meet_at_either_kind_of_address() {
    for (const char *const address : {"127.0.0.1", "::1"}) {
        std::vector<KeepaliveListener> ports;
        for (int rank = 0; rank < 3; rank++) ports.push_back(port_at({address}));
        check_ring(ports);
    }
}

// The first address leads to a stranger, as the addresses of bridges for containers do, which are
// equal on all hosts. At the second there is no listener. The third may not exist here.
void one_of_many_addresses_is_enough() {
    std::vector<KeepaliveListener> ports;
    for (int rank = 0; rank < 3; rank++) ports.push_back(port_at({"127.0.0.1", "::1"}));
    const KeepaliveListener stranger = port_at({"127.0.0.2", "127.0.0.3"});
    const auto lead_astray = [&](const KeepaliveListener &port) {
        KeepaliveAddress contact = port.contact();
        contact.addresses[2] = contact.addresses[1];
        contact.addresses[3] = contact.addresses[0];
        contact.addresses[0] = stranger.contact().addresses[0];
        contact.addresses[1] = stranger.contact().addresses[1];
        contact.addresses[1].ipv4.sin_port = htons(1);
        return contact;
    };
    std::thread other([&] {
        KeepaliveConnector meeting(ports[1], 1);
        meeting.expect(0);
        CHECK_OK(meeting.run(Clock::now() + 5s));
    });
    KeepaliveConnector meeting(ports[0], 0);
    meeting.call(lead_astray(ports[1]), 1);
    const Done met = meeting.run(Clock::now() + 5s);
    other.join();
    CHECK_OK(met);
}

void an_address_that_is_not_here_is_left_out() {
    std::vector<KeepaliveListener> ports;
    ports.push_back(port_at({"192.0.2.1", "127.0.0.1"}));
    ports.push_back(port_at({"192.0.2.1", "::1"}));
    CHECK_EQ(ports[0].listeners().size(), 1U);
    check_ring(ports);
    CHECK(!KeepaliveListener::open(std::array{address_of("192.0.2.1")}));
}

// A KeepaliveAddress has room for so many.
void only_the_first_addresses_are_used() {
    std::vector<sockaddr_storage> addresses;
    for (size_t i = 0; i < KeepaliveAddress::most_addresses + 2; i++)
        addresses.push_back(address_of("127.0.0.1"));
    const auto port = KeepaliveListener::open(addresses);
    CHECK_OK(port);
    CHECK_EQ(port->listeners().size(), KeepaliveAddress::most_addresses);
}

// The kernel begins to probe early enough for several probes to go unanswered.
void a_connection_is_probed_in_time() {
    const FileDescriptor connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto option = [&](int level, int name) {
        int value = -1;
        socklen_t bytes = sizeof value;
        CHECK_EQ(getsockopt(connection.number(), level, name, &value, &bytes), 0);
        return value;
    };
    enable_keepalive(connection, 16s);
    CHECK_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    CHECK_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 4);
    CHECK_EQ(option(IPPROTO_TCP, TCP_KEEPINTVL), 2);
    CHECK_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 16000);
    enable_keepalive(connection, 100ms); // not less than the kernel counts in
    CHECK_EQ(option(IPPROTO_TCP, TCP_KEEPIDLE), 1);
    CHECK_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 100);
}

void who_is_not_there_is_named() {
    const KeepaliveListener here = port_at({"127.0.0.1"});
    KeepaliveAddress gone;
    gone = port_at({"127.0.0.1", "::1"}).contact();
    KeepaliveConnector calls(here, 0);
    calls.call(gone, 7);
    const auto start = Clock::now();
    const Done refused = calls.run(start + 5s);
    CHECK(!refused && Clock::now() - start < 2s);
    CHECK(refused.error().code == Code::peer_lost && refused.error().rank == 7);
    KeepaliveConnector waits(here, 0);
    waits.expect(4);
    const Done late = waits.run(Clock::now() + 100ms);
    CHECK(!late);
    CHECK(late.error().code == Code::timeout && late.error().rank == 4);
}

// A rank does not wait any longer for a peer that other ranks know to be gone.
void a_vain_wait_ends_early() {
    const KeepaliveListener here = port_at({"127.0.0.1"});
    KeepaliveConnector waits(here, 0);
    waits.expect(4);
    const auto start = Clock::now();
    const CancelCheck cancel_check = [&]() -> Done {
        if (Clock::now() - start < 50ms) return {};
        return Error::make(Code::peer_lost, "rank 4 is gone");
    };
    const Done vain = waits.run(start + 60s, cancel_check);
    CHECK(!vain && Clock::now() - start < 30s);
    CHECK_EQ(std::string(vain.error().text), std::string("rank 4 is gone"));
}

FileDescriptor knock(const KeepaliveListener &port) {
    const InetAddress &address = port.contact().addresses[0];
    FileDescriptor stranger(socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    (void)connect(stranger.number(), &address.any, address.bytes());
    return stranger;
}

// Up to a thousand strangers connect before and while the ranks do: silent, dribbling, with
// garbage, with what looks like a greeting, and with the answer instead of the cookie.
void strangers_keep_nobody_out(const char *address) {
    const size_t most = make_room_for_strangers();
    std::vector<KeepaliveListener> ports;
    for (int rank = 0; rank < 3; rank++) ports.push_back(port_at({address}));
    std::atomic<bool> is_over = false;
    std::atomic<int> come = 0;
    std::thread crowd([&] {
        std::vector<FileDescriptor> strangers(most);
        for (size_t turn = 0; !is_over; turn++) {
            for (size_t i = 0; i < strangers.size() && !is_over; i++) {
                FileDescriptor &one = strangers[i];
                const KeepaliveListener &port = ports[i % ports.size()];
                std::array<std::byte, 20> said{};
                if (i % 4 == 1) said.fill(std::byte{'x'});
                if (i % 4 == 2)
                    std::memcpy(said.data(), port.contact().answer.data(),
                                port.contact().answer.size());
                const size_t bytes = i % 4 == 0 ? 0 : i % 4 == 3 ? 1 : said.size();
                const bool speaks =
                    one.is_open() && (bytes == 0 || send(one.number(), said.data(), bytes,
                                                         MSG_NOSIGNAL | MSG_DONTWAIT) > 0);
                if (!speaks || turn % 8 == 0) one = knock(port);
                come++;
            }
        }
    });
    while (come < static_cast<int>(most)) std::this_thread::sleep_for(1ms);
    check_ring(ports);
    is_over = true;
    crowd.join();
}

void strangers_keep_nobody_out_of_ipv4() { strangers_keep_nobody_out("127.0.0.1"); }
void strangers_keep_nobody_out_of_ipv6() { strangers_keep_nobody_out("::1"); }

// At the first address a stranger answers every caller; the called rank is at the second.
void who_answers_with_something_else_is_somebody_else() {
    const KeepaliveListener here = port_at({"127.0.0.1"}), there = port_at({"127.0.0.1"});
    const KeepaliveListener polite = port_at({"127.0.0.1"});
    std::thread stranger([&] {
        const int door = polite.listeners()[0].number();
        pollfd first{door, POLLIN, 0};
        CHECK_EQ(poll(&first, 1, 5000), 1);
        const FileDescriptor guest(accept(door, nullptr, nullptr));
        std::array<std::byte, 20> heard{};
        CHECK_EQ(recv(guest.number(), &heard, sizeof heard, MSG_WAITALL), ssize_t{sizeof heard});
        // Sends back what it has heard, and no more.
        CHECK_EQ(send(guest.number(), &heard, 16, MSG_NOSIGNAL), ssize_t{16});
        std::this_thread::sleep_for(200ms); // before the other answers
        KeepaliveConnector meeting(there, 1);
        meeting.expect(0);
        CHECK_OK(meeting.run(Clock::now() + 5s));
        const FileDescriptor met = meeting.take_expected();
        pollfd one{met.number(), POLLIN, 0};
        CHECK_EQ(poll(&one, 1, 5000), 1);
        char byte = 0;
        CHECK_EQ(recv(met.number(), &byte, 1, MSG_DONTWAIT), ssize_t{1});
    });
    KeepaliveAddress contact = there.contact();
    contact.addresses[1] = contact.addresses[0];
    contact.addresses[0] = polite.contact().addresses[0];
    KeepaliveConnector meeting(here, 0);
    meeting.call(contact, 1);
    const Done met = meeting.run(Clock::now() + 5s);
    send(meeting.take_called().number(), "x", 1, MSG_NOSIGNAL);
    stranger.join();
    CHECK_OK(met);
}

// If strangers crowd the called rank's port, a caller may have to give way before its greeting is
// read. The caller then connects again.
void a_caller_that_is_turned_away_comes_again() {
    const KeepaliveListener here = port_at({"127.0.0.1"}), there = port_at({"127.0.0.1"});
    std::thread crowded([&] {
        const int door = there.listeners()[0].number();
        pollfd first{door, POLLIN, 0};
        CHECK_EQ(poll(&first, 1, 5000), 1);
        const FileDescriptor gives_way(accept(door, nullptr, nullptr));
        CHECK(gives_way.is_open());
        shutdown(gives_way.number(), SHUT_RDWR);
        KeepaliveConnector meeting(there, 1);
        meeting.expect(0);
        CHECK_OK(meeting.run(Clock::now() + 5s));
    });
    KeepaliveConnector meeting(here, 0);
    meeting.call(there.contact(), 1);
    const Done met = meeting.run(Clock::now() + 5s);
    crowded.join();
    CHECK_OK(met);
}

// There is no free descriptor for an accepted connection, or for the connection to the called rank.
// The rank reports that as its own error, and does not wait.
void who_has_too_many_files_says_so() {
    const KeepaliveListener here = port_at({"127.0.0.1"});
    const FileDescriptor other = knock(here);
    const DescriptorLimit limit(DescriptorLimit::with_spare(0));
    for (const bool calls : {false, true}) {
        KeepaliveConnector meeting(here, 0);
        if (calls)
            meeting.call(here.contact(), 1);
        else
            meeting.expect(1);
        const auto start = Clock::now();
        const Done met = meeting.run(start + 5s);
        CHECK(!met && Clock::now() - start < 2s);
        CHECK(met.error().code == Code::system_error);
        CHECK(std::string(met.error().text).find("Too many open files") != std::string::npos);
    }
}

// Connects to the port and greets as that rank.
FileDescriptor greet(const KeepaliveListener &port, uint32_t rank) {
    const struct {
        std::array<std::byte, 16> cookie;
        uint32_t rank;
    } greeting{port.contact().cookie, rank};
    FileDescriptor one = knock(port);
    CHECK_EQ(send(one.number(), &greeting, sizeof greeting, 0), ssize_t{sizeof greeting});
    return one;
}

// Waits until the port has answered, or has closed the connection.
bool is_answered(const FileDescriptor &caller, const KeepaliveListener &port) {
    std::array<std::byte, 16> answer{};
    const ssize_t got = recv(caller.number(), &answer, sizeof answer, MSG_WAITALL);
    return got == ssize_t{sizeof answer} && answer == port.contact().answer;
}

// A stranger that has seen a greeting cannot repeat it to pass for that rank.
void a_replayed_greeting_is_too_late() {
    const KeepaliveListener port = port_at({"127.0.0.1"});
    const FileDescriptor honest = greet(port, 1), thief = greet(port, 1);
    KeepaliveConnector meeting(port, 0);
    meeting.expect(1);
    CHECK_OK(meeting.run(Clock::now() + 5s));
    CHECK(is_answered(honest, port));
    std::array<std::byte, 16> answer{};
    CHECK_EQ(recv(thief.number(), &answer, sizeof answer, MSG_DONTWAIT), ssize_t{-1});
}

// Rank 0 still waits for the rank that it calls. Another rank's greeting, and one that comes after
// the expected rank's, change nothing.
void only_the_first_greeting_of_the_expected_rank_counts() {
    const KeepaliveListener port = port_at({"127.0.0.1"}), there = port_at({"127.0.0.1"});
    KeepaliveConnector meeting(port, 0);
    meeting.expect(1);
    meeting.call(there.contact(), 1);
    Done met;
    std::thread rank_0([&] { met = meeting.run(Clock::now() + 5s); });
    const FileDescriptor other = greet(port, 2);
    const bool is_other_answered = is_answered(other, port);
    const FileDescriptor honest = greet(port, 1);
    const bool is_honest_answered = is_answered(honest, port);
    const FileDescriptor thief = greet(port, 1);
    const bool is_thief_answered = is_answered(thief, port);
    KeepaliveConnector called(there, 1);
    called.expect(0);
    const Done came = called.run(Clock::now() + 5s);
    rank_0.join();
    CHECK_OK(met);
    CHECK_OK(came);
    CHECK(!is_other_answered && is_honest_answered && !is_thief_answered);
    const FileDescriptor expected = meeting.take_expected();
    CHECK_EQ(send(expected.number(), "x", 1, MSG_NOSIGNAL), ssize_t{1});
    char byte = 0;
    CHECK_EQ(recv(honest.number(), &byte, 1, 0), ssize_t{1});
}

// A rank has no descriptor left for the connection that it makes, and gives up a stranger's.
void a_caller_takes_the_descriptor_of_a_stranger() {
    const KeepaliveListener here = port_at({"127.0.0.1"}), there = port_at({"127.0.0.1"});
    const FileDescriptor stranger = knock(here);
    KeepaliveConnector meeting(here, 0);
    meeting.expect(1);
    int looks = 0;
    const CancelCheck second_look = [&]() -> Done {
        if (looks++ == 0) return {};
        return Error::make(Code::timeout, "the stranger has been accepted");
    };
    CHECK(!meeting.run(Clock::now() + 5s, second_look));
    const DescriptorLimit limit(DescriptorLimit::with_spare(0));
    meeting.call(there.contact(), 1);
    const Done met = meeting.run(Clock::now() + 20ms);
    CHECK(!met);
    CHECK(met.error().code == Code::peer_lost); // no rank is there, but there was a descriptor
    char byte = 0;
    CHECK_EQ(recv(stranger.number(), &byte, 1, 0), ssize_t{0});
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(ranks_meet_at_either_kind_of_address),
        QTEST(one_of_many_addresses_is_enough),
        QTEST(an_address_that_is_not_here_is_left_out),
        QTEST(only_the_first_addresses_are_used),
        QTEST(a_connection_is_probed_in_time),
        QTEST(who_is_not_there_is_named),
        QTEST(strangers_keep_nobody_out_of_ipv4),
        QTEST(strangers_keep_nobody_out_of_ipv6),
        QTEST(who_answers_with_something_else_is_somebody_else),
        QTEST(a_caller_that_is_turned_away_comes_again),
        QTEST(who_has_too_many_files_says_so),
        QTEST(a_replayed_greeting_is_too_late),
        QTEST(only_the_first_greeting_of_the_expected_rank_counts),
        QTEST(a_caller_takes_the_descriptor_of_a_stranger),
        QTEST(a_vain_wait_ends_early),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
