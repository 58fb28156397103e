// Tests the messages of bootstrap on the wire: their number, and that a replayed session is
// refused.
#include "relay.hpp"

#include "bootstrap/rendezvous.hpp"

using namespace kit;

static IdFields fields_of(const UniqueId &id) {
    const auto fields = unpack(id);
    CHECK_OK(fields);
    return *fields;
}

// Every rank joins and takes part in three exchanges. Returns the number of messages of each rank.
static std::vector<size_t> messages_of_each(uint32_t size) {
    const IdFields fields = fields_of(make_id());
    Relay relay(fields.endpoints.front());
    const UniqueId id = pack({{relay.endpoint()}, fields.secret});
    for (const Done &done :
         crowd(size, [&](uint32_t rank) { return join_and_exchange(id, size, rank); }))
        CHECK_OK(done);
    std::vector<size_t> messages;
    for (const Relay::Conversation &one : relay.end())
        messages.push_back(3 + frames_in(one.by_rank, sizeof(Hello) + sizeof(Proof)) +
                           frames_in(one.by_server, sizeof(Challenge)));
    return messages;
}

// O(P log P) messages would be allowed, and the rendezvous takes O(P). A conversation may end
// before the relay has recorded its last messages.
static void messages_grow_no_faster_than_ranks() {
    constexpr size_t handshake = 3, accepted_and_complete = 2, exchange_of_three = 6, farewell = 1,
                     host = 1;
    constexpr size_t most = handshake + accepted_and_complete + exchange_of_three + farewell + host;
    for (const uint32_t size : {2U, 8U, 32U, 64U}) {
        const std::vector<size_t> messages = messages_of_each(size);
        CHECK_EQ(messages.size(), size_t{size});
        for (const size_t one : messages) CHECK(one >= most - host - farewell && one <= most);
    }
}

// The session is replayed to a later rendezvous with the same secret and port, as the jobs of a
// launcher have.
static void a_recorded_session_opens_nothing() {
    Secret secret{std::byte{7}};
    RendezvousOptions some = options();
    some.linger = 0s;
    std::vector<Endpoint> here{*parse_address("127.0.0.1")};
    std::string recorded;
    {
        auto listeners = open_listeners(here);
        CHECK_OK(listeners);
        CHECK_OK(serve_rendezvous(std::move(*listeners), secret, some, Afterwards::make_room));
        Relay relay(here.front());
        const auto done = crowd(2, [&](uint32_t rank) {
            const UniqueId id = pack({{rank == 1 ? relay.endpoint() : here.front()}, secret});
            return join_and_exchange(id, 2, rank);
        });
        for (const Done &one : done) CHECK_OK(one);
        recorded = relay.end().front().by_rank;
        CHECK(recorded.size() > sizeof(Hello) + sizeof(Proof) + 3 * frame_overhead_bytes);
    }
    auto listeners = open_listeners(here); // the port is free again
    CHECK_OK(listeners);
    CHECK_OK(serve_rendezvous(std::move(*listeners), secret, some, Afterwards::make_room));
    const auto replay = [&] {
        const int thief = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        const SocketAddress address = to_socket_address(here.front());
        CHECK(connect(thief, address.get(), address.bytes) == 0);
        CHECK(send(thief, recorded.data(), recorded.size(), MSG_NOSIGNAL) > 0);
        size_t heard = 0;
        char piece[512];
        for (ssize_t got; (got = recv(thief, piece, sizeof piece, 0)) > 0;)
            heard += static_cast<size_t>(got);
        close(thief);
        return heard;
    };
    // The server sends a challenge, which the replay cannot answer, and then closes the connection.
    for (int i = 0; i < 50; i++) CHECK(replay() <= sizeof(Challenge));
    const UniqueId id = pack({here, secret});
    for (const Done &one : crowd(2, [&](uint32_t rank) { return join_and_exchange(id, 2, rank); }))
        CHECK_OK(one);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(messages_grow_no_faster_than_ranks),
        QTEST(a_recorded_session_opens_nothing),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
