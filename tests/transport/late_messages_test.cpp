// Tests transport/remote_endpoint: control messages that come late or twice take nothing back, and
// a rank that leaves stays until its messages have been delivered.
#include "transport_ways.hpp"

#include "fault/survivor_exchange.hpp"
#include "transport/remote_endpoint.hpp"

#include <map>

using namespace qccl;
using namespace qtest;

namespace {

// ---- Messages that come again

struct SeenMessage {
    MessageHeader header{};
    std::vector<std::byte> bytes{};
    bool may_be_eager = false;
};

// What all ranks have posted to the network, in order.
struct Seen {
    std::mutex mutex;
    std::vector<SeenMessage> messages;
};
Seen seen;

// Returns the first message of that rank and kind, or of any kind.
SeenMessage first_seen(uint32_t from, std::optional<MessageKind> kind) {
    const std::lock_guard guard(seen.mutex);
    for (const SeenMessage &each : seen.messages)
        if (each.header.from == from && (!kind || each.header.kind == *kind)) return each;
    throw Failure{"no such message"};
}

SeenMessage last_seen(uint32_t from) {
    const std::lock_guard guard(seen.mutex);
    for (size_t i = seen.messages.size(); i-- > 0;)
        if (seen.messages[i].header.from == from) return seen.messages[i];
    throw Failure{"no such message"};
}

void deliver(NetworkEnd &end, const SeenMessage &message) {
    const auto *const head = reinterpret_cast<const std::byte *>(&message.header);
    end.tell(NetworkEnd::Came{{head, head + sizeof message.header}, message.bytes, {}});
}

NetworkModule seeing_module() {
    NetworkModule module = memory_network::module;
    module.post = [](NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                     const NetworkPart *parts, size_t part_count, bool may_be_eager,
                     uint64_t token) {
        SeenMessage message{.may_be_eager = may_be_eager};
        std::memcpy(&message.header, head, sizeof message.header);
        for (size_t i = 0; i < part_count; i++) {
            const auto *const data = static_cast<const std::byte *>(parts[i].data);
            message.bytes.insert(message.bytes.end(), data, data + parts[i].bytes);
        }
        {
            const std::lock_guard guard(seen.mutex);
            seen.messages.push_back(std::move(message));
        }
        return memory_network::post(end, peer, head, head_bytes, parts, part_count, may_be_eager,
                                    token);
    };
    return module;
}

void run_seen(const Body &body, const TransportOptions &options = small_options()) {
    static const NetworkModule module = seeing_module();
    seen.messages.clear();
    run_ranks(
        Kind::inproc_apart, 2,
        [&](const Rank &plain) {
            Rank rank = plain;
            rank.options.remote.network = &module;
            body(rank);
        },
        options);
}

// Rank 0's share of an exchange comes again when rank 0 has given a later share in its place.
void a_record_that_comes_again_replaces_no_later_one() {
    run_seen([](const Rank &rank) {
        const auto transport = create(rank);
        std::atomic<uint64_t> &steps = rank.meeting.board[0];
        MemberGroup group{.topic = 1, .members = {0, 1}, .timeout = 5s, .what = "the test's group"};
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t all[2], mine = 2 * round + rank.rank;
            if (round == 3) rank.meeting.barrier();
            if (round == 3 && rank.rank == 0)
                group.is_called_off = [&] { // rank 0 has published its share by now
                    steps++;
                    return false;
                };
            if (round == 3 && rank.rank == 1) {
                await([&] { return steps != 0; });
                SeenMessage again = first_seen(0, MessageKind::record);
                for (int i = 0; i < 2; i++, again.header.tag.instance ^= 1)
                    deliver(end_of(1), again); // in the place of each share
            }
            CHECK_OK(transport->survivor_exchange().all_gather(group, &mine, all, sizeof mine));
            CHECK_EQ(all[0], 2 * round);
            CHECK_EQ(all[1], 2 * round + 1);
        }
        rank.meeting.barrier();
    });
}

// A status that is overtaken by a later one does not take a call back: rank 1 waits for rank 0's
// call, and rank 0 says nothing more about it.
void a_status_that_comes_late_takes_no_call_back() {
    run_seen([](const Rank &rank) {
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 3; call++)
            CHECK_OK(run(*transport, call_number(call), Way::meeting));
        rank.meeting.barrier();
        CHECK_OK(begin(*transport, call_number(4), 500ms));
        if (rank.rank == 1) {
            await([] { return last_seen(0).header.call.call == 4; });
            deliver(end_of(1), first_seen(0, {}));
        }
        CHECK_OK(transport->await_all());
        rank.meeting.barrier();
    });
}

// Rank 1 has consumed all that rank 0 has sent. An early message of rank 1 that comes again does
// not take that back, and a message that counts too much is not believed: rank 0 still sends
// eagerly.
void acknowledged_bytes_stay_acknowledged() {
    static constexpr size_t bytes = size_t{512} << 10;
    static constexpr auto messages =
        static_cast<uint32_t>(2 * RemoteEndpoint::most_unacked(1) / bytes);
    TransportOptions options;
    options.outbox_bytes = 2 * bytes;
    options.slots = 2;
    run_seen(
        [](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(begin(*transport, call_number(1), 30s));
            const RecvBuffer buffer{transport->slots(), transport->inbox().first(bytes)};
            std::byte *const data = transport->outbox().data();
            const auto send_one = [&](uint32_t instance) {
                const WaitScope waiting(*transport);
                while (!transport->is_free(0)) CHECK_OK(transport->wait(1));
                CHECK_OK(transport->send(1, {.instance = instance}, MessageView{data, bytes, 0, 0},
                                         Transport::Sends::at_once));
            };
            const auto receive_one = [&](uint32_t instance) {
                const auto view = receive(*transport, 0, {.instance = instance}, buffer);
                CHECK_OK(view);
                transport->release(*view);
            };
            for (uint32_t i = 0; i < messages; i++) {
                if (rank.rank == 0) send_one(i);
                if (rank.rank == 1) receive_one(i);
            }
            rank.meeting.barrier();
            if (rank.rank == 0) {
                CHECK(!transport->failure()); // takes the acknowledgements that have come
                SeenMessage early = first_seen(1, {});
                early.header.acked_bytes = 0; // as before rank 1 had consumed anything
                deliver(end_of(0), early);
                CHECK(!transport->failure());
                send_one(messages);
                CHECK(last_seen(0).may_be_eager);
                early.header.acked_bytes = UINT64_MAX;
                deliver(end_of(0), early);
                CHECK(!transport->failure());
                send_one(messages + 1);
                CHECK(last_seen(0).may_be_eager);
            } else {
                receive_one(messages);
                receive_one(messages + 1);
            }
            rank.meeting.barrier();
        },
        options);
}

// On a slow line two messages of any length go eagerly, because the request to pull one would queue
// behind the messages of its own direction.
void two_long_messages_go_at_once_on_a_slow_line() {
    static constexpr size_t bytes = size_t{5} << 20;
    static constexpr uint32_t messages = 3;
    TransportOptions options;
    options.outbox_bytes = messages * bytes;
    options.slots = messages;
    static constexpr double slow = RemoteEndpoint::slow_bytes_per_ns / 2;
    for (const double rate : {slow, 2 * RemoteEndpoint::slow_bytes_per_ns})
        run_seen(
            [rate](const Rank &rank) {
                const auto transport = create(rank);
                transport->use_line_rate(rate);
                CHECK_OK(begin(*transport, call_number(1), 30s));
                for (uint32_t i = 0; i < messages && rank.rank == 0; i++) {
                    const MessageView view{transport->outbox().data(), bytes, 0, i};
                    CHECK_OK(transport->send(1, {.instance = i}, view, Transport::Sends::at_once));
                    CHECK_EQ(last_seen(0).may_be_eager, rate == slow && i < 2);
                }
                rank.meeting.barrier();
                for (uint32_t i = 0; i < messages && rank.rank == 1; i++) {
                    const RecvBuffer buffer = buffer_of_message(*transport, i, bytes);
                    const auto view = receive(*transport, 0, {.instance = i}, buffer);
                    CHECK_OK(view);
                    transport->release(*view);
                }
                CHECK_OK(transport->end());
                rank.meeting.barrier();
            },
            options);
}

// ---- Messages on their way

// A network that takes a message at once and delivers it some looks later. What it has not
// delivered when it is closed is lost, as on a real one.
constexpr int looks_to_deliver = 10;
std::atomic<const NetworkEnd *> slow_end{nullptr}; // what it has posted is not delivered yet

struct UndeliveredMessage {
    uint32_t peer;
    std::vector<std::byte> head, bytes;
};
struct Undelivered {
    std::mutex mutex;
    struct OfEnd {
        int looks = 0;
        std::vector<UndeliveredMessage> messages{};
    };
    std::map<NetworkEnd *, OfEnd> of_end;
};
Undelivered undelivered;

NetworkModule late_module() {
    NetworkModule module = memory_network::module;
    module.post = [](NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                     const NetworkPart *parts, size_t part_count, bool, uint64_t) {
        const auto *const first = static_cast<const std::byte *>(head);
        UndeliveredMessage message{peer, {first, first + head_bytes}, {}};
        for (size_t i = 0; i < part_count; i++) {
            const auto *const data = static_cast<const std::byte *>(parts[i].data);
            message.bytes.insert(message.bytes.end(), data, data + parts[i].bytes);
        }
        const std::lock_guard guard(undelivered.mutex);
        Undelivered::OfEnd &own = undelivered.of_end[end];
        own.looks = 0;
        own.messages.push_back(std::move(message));
        return NetworkModule::Posted::done;
    };
    module.progress = [](NetworkEnd *end) {
        std::vector<UndeliveredMessage> due;
        {
            const std::lock_guard guard(undelivered.mutex);
            Undelivered::OfEnd &own = undelivered.of_end[end];
            if (++own.looks >= looks_to_deliver && end != slow_end) due.swap(own.messages);
        }
        for (const UndeliveredMessage &each : due) {
            const NetworkPart part{each.bytes.data(), each.bytes.size()};
            (void)memory_network::post(end, each.peer, each.head.data(), each.head.size(), &part, 1,
                                       true, 0);
        }
        return memory_network::progress(end) || !due.empty();
    };
    module.close = [](NetworkEnd *end) {
        {
            const std::lock_guard guard(undelivered.mutex);
            undelivered.of_end.erase(end);
        }
        memory_network::close(end);
    };
    return module;
}

Done post_eager(Transport &transport) {
    QCCL_TRY(transport.eager_slot(8));
    transport.post_eager(8);
    return {};
}

// Rank 0 gives its call up and leaves. Rank 1 still gets what rank 0 has sent, a message or its
// eager slot, and rank 0 waits no longer than that takes.
template <bool is_eager> void a_rank_leaves_when_its_messages_have_arrived() {
    static const NetworkModule module = late_module();
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.remote.network = &module;
        auto transport = create(rank);
        std::atomic<uint64_t> &has_left = rank.meeting.board[0];
        CHECK_OK(begin(*transport, call_number(1), 10s));
        if (is_eager) CHECK_OK(post_eager(*transport));
        if (rank.rank == 0) {
            if (!is_eager) CHECK_OK(send(*transport, 1, *free_view(*transport)));
            const auto start = Clock::now();
            transport.reset();
            CHECK(Clock::now() - start < 800ms);
            has_left = 1;
            return;
        }
        CHECK_OK(is_eager ? outcome(transport->await_eager(0)) : outcome(receive(*transport, 0)));
        await([&] {
            (void)transport->failure(); // answers rank 0
            return has_left != 0;
        });
    });
}

// Rank 0 leaves while the system still sends rank 0's message over a slow line, for longer than
// rank 0 waits for ranks that say nothing. Rank 1 waits for the message, says so, and gets it.
void a_rank_stays_while_a_peer_waits_for_its_message() {
    static const NetworkModule module = late_module();
    static constexpr auto takes = 2500ms;
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.remote.network = &module;
        auto transport = create(rank);
        if (rank.rank == 0) slow_end = &end_of(0);
        rank.meeting.barrier();
        std::atomic<uint64_t> &has_left = rank.meeting.board[0];
        CHECK_OK(begin(*transport, call_number(1), 10s));
        if (rank.rank == 0) {
            CHECK_OK(send(*transport, 1, *free_view(*transport)));
            CHECK_OK(transport->end());
            transport.reset();
            has_left = 1;
            return;
        }
        const RecvBuffer buffer = free_buffer(*transport);
        const auto start = Clock::now();
        for (const WaitScope waiting(*transport);;) {
            const auto view = transport->receive(0, {}, buffer);
            CHECK_OK(view);
            if (*view) break;
            CHECK_OK(transport->wait(0));
            if (Clock::now() - start > takes) slow_end = nullptr;
        }
        await([&] {
            (void)transport->failure(); // answers rank 0
            return has_left != 0;
        });
    });
    slow_end = nullptr;
}

// ---- Failures

// Rank 0's messages do not come through, and its keepalive connection carries a failure that makes
// no sense.
void a_failure_on_a_keepalive_connection_is_checked() {
    NetworkEnd nowhere;
    run_ranks(Kind::inproc_apart, 2, [&](const Rank &rank) {
        const auto transport = create(rank);
        rank.meeting.barrier();
        if (rank.rank == 0) {
            NetworkEnd &own = end_of(0);
            {
                const std::lock_guard guard(memory_network::living().mutex);
                own.peers[1] = &nowhere;
            }
            transport->fail(Error::make(Code(99), "nonsense").at_rank(1000));
        } else {
            const MemberGroup group{.members = {0, 1}, .what = "the test's group"};
            await([&] {
                (void)transport->survivor_exchange().check(group);
                return transport->failure().has_value();
            });
            check_error(*transport->failure(), Code::remote_error, 0,
                        "rank 0 says that the communicator has failed, but not why");
        }
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_record_that_comes_again_replaces_no_later_one),
        QTEST(a_status_that_comes_late_takes_no_call_back),
        QTEST(acknowledged_bytes_stay_acknowledged),
        QTEST(two_long_messages_go_at_once_on_a_slow_line),
        QTEST(a_rank_leaves_when_its_messages_have_arrived<false>),
        QTEST(a_rank_leaves_when_its_messages_have_arrived<true>),
        QTEST(a_rank_stays_while_a_peer_waits_for_its_message),
        QTEST(a_failure_on_a_keepalive_connection_is_checked),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
