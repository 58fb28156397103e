// Tests transport/remote_endpoint: messages that do not come from the ranks change nothing,
// unreceived messages stay within bounds, small messages travel in batches, and damaged or lost
// messages fail the communicator.
#include "transport_ways.hpp"

#include "transport/remote_endpoint.hpp"

#include <malloc.h>

using namespace qccl;
using namespace qtest;

namespace {

bool holds_only(const MessageView &view, std::byte value) {
    return std::all_of(view.data, view.data + view.bytes,
                       [&](std::byte each) { return each == value; });
}

// Waits for a message and takes it, with all other news, away from the end before its rank sees it.
NetworkEnd::Came take_message(NetworkEnd &end) {
    std::optional<NetworkEnd::Came> message;
    await([&] {
        const std::lock_guard guard(end.mutex);
        for (NetworkEnd::News &news : end.news)
            if (auto *const came = std::get_if<NetworkEnd::Came>(&news)) message = std::move(*came);
        if (message) end.news.clear();
        return message.has_value();
    });
    return std::move(*message);
}

// Delivers the message as if it had `bytes` bytes.
void deliver(const NetworkEnd &end, const NetworkEnd::Came &message, size_t bytes) {
    end.events.on_message(end.events.context, message.head.data(), message.head.size(),
                          message.bytes.data(), bytes, nullptr);
}

// A process that finds the port of a rank can send to it, but does not know the session of the
// ranks. A rank accepts no message from a rank of its own host either.
void strangers_messages_are_thrown_away() {
    run_ranks(Kind::inproc_pairs, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 3) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &living : memory_network::living().ends)
                for (const uint32_t from : {0U, 3U, 99U}) {
                    const Error forged = Error::make(Code::revoked, "forged");
                    const auto *const bytes = reinterpret_cast<const std::byte *>(&forged);
                    MessageHeader header{.kind = MessageKind::failure, .from = from};
                    const auto *const head = reinterpret_cast<const std::byte *>(&header);
                    living.first->tell(NetworkEnd::Came{
                        {head, head + sizeof header}, {bytes, bytes + sizeof forged}, {}});
                    header.kind = MessageKind::goodbye;
                    living.first->tell(NetworkEnd::Came{{head, head + sizeof header}, {}, {}});
                    living.first->tell(NetworkEnd::Came{{head, head + 7}, {}, {}});
                }
        }
        rank.meeting.barrier();
        for (uint64_t call = 2; call <= 5; call++)
            CHECK_OK(run(*transport, call_number(call), Way::mailbox));
        CHECK(!transport->failure());
        rank.meeting.barrier();
    });
}

// Rank 1 receives nothing for a while. The bytes that it has not asked for stay within bounds, and
// the other messages wait at rank 0 until rank 1 has buffers again.
template <Kind kind> void nobody_is_sent_more_than_it_may_keep() {
    static constexpr uint32_t messages = 24;
    static constexpr size_t bytes = size_t{512} << 10;
    TransportOptions options;
    options.outbox_bytes = messages * bytes;
    options.slots = messages;
    run_ranks(
        kind, 2,
        [](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::ring));
            CHECK_OK(begin(*transport, call_number(2), 30s));
            const auto under_way = [&] {
                uint64_t count = 0;
                for (uint32_t slot = 0; slot < messages; slot++) count += !transport->is_free(slot);
                return count;
            };
            const auto look_around = [&] {
                for (const auto start = Clock::now(); Clock::now() - start < 300ms;)
                    CHECK_OK(transport->wait(1 - rank.rank));
            };
            for (uint32_t i = 0; i < messages && rank.rank == 0; i++) {
                std::byte *const data = transport->outbox().data() + i * bytes;
                std::memset(data, static_cast<int>(i + 1), bytes);
                CHECK_OK(transport->send(1, {.instance = i}, MessageView{data, bytes, 0, i},
                                         Transport::Sends::at_once));
            }
            look_around();
            constexpr uint64_t pushed = RemoteEndpoint::most_unacked(1) / bytes;
            if (rank.rank == 0) CHECK_EQ(under_way(), messages - pushed);
            rank.meeting.barrier();
            for (uint32_t i = 0; i < messages && rank.rank == 1; i++) {
                const RecvBuffer buffer = buffer_of_message(*transport, i, bytes);
                const auto view = receive(*transport, 0, {.instance = i}, buffer);
                CHECK_OK(view);
                CHECK_EQ(view->bytes, bytes);
                CHECK(holds_only(*view, std::byte(i + 1)));
                transport->release(*view);
            }
            {
                const WaitScope waiting(*transport);
                while (rank.rank == 0 && under_way() != 0) CHECK_OK(transport->wait(1));
            }
            CHECK_OK(transport->end());
            // Rank 1 has acknowledged the bytes by now, so rank 0 may send eagerly again.
            CHECK_OK(begin(*transport, call_number(3), 30s));
            if (rank.rank == 0)
                CHECK_OK(transport->send(1, {},
                                         MessageView{transport->outbox().data(), bytes, 0, 0},
                                         Transport::Sends::at_once));
            look_around();
            CHECK_EQ(under_way(), 0U);
            rank.meeting.barrier();
        },
        options);
}

// Small messages of rank 0 travel as one: the first ones wait for the last, or for the next wait of
// rank 0.
template <Kind kind> void small_messages_go_as_one() {
    static constexpr uint32_t messages = 5;
    static constexpr size_t bytes = 1000;
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::ring));
        for (uint64_t call = 2; call <= 3; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            const bool has_last = call == 2;
            for (uint32_t i = 0; i < messages && rank.rank == 0; i++) {
                std::byte *const data = transport->outbox().data() + i * bytes;
                std::memset(data, static_cast<int>(i + call), bytes);
                const bool waits = !has_last || i + 1 < messages;
                CHECK_OK(transport->send(1, {.instance = i}, MessageView{data, bytes, 0, i},
                                         waits ? Transport::Sends::with_next
                                               : Transport::Sends::at_once));
                // A message that waits for the next one is a copy, so its slot is free.
                CHECK(transport->is_free(i));
                std::memset(data, 0xff, bytes);
            }
            if (rank.rank == 0 && !has_last) CHECK_OK(transport->wait(1));
            for (uint32_t i = messages; i-- > 0 && rank.rank == 1;) {
                const RecvBuffer buffer = buffer_of_message(*transport, i, bytes);
                const auto view = receive(*transport, 0, {.instance = i}, buffer);
                CHECK_OK(view);
                CHECK_EQ(view->bytes, bytes);
                CHECK(holds_only(*view, std::byte(i + call)));
                transport->release(*view);
            }
            CHECK_OK(transport->end());
        }
        rank.meeting.barrier();
    });
}

// Returns how many messages have arrived at the end and are not processed yet.
size_t count_untaken(NetworkEnd &end) {
    const std::lock_guard guard(end.mutex);
    return static_cast<size_t>(
        std::count_if(end.news.begin(), end.news.end(), [](const NetworkEnd::News &each) {
            return std::holds_alternative<NetworkEnd::Came>(each);
        }));
}

// Returns the batches that have arrived at the end and are not processed yet.
std::vector<std::vector<std::byte>> untaken_batches(NetworkEnd &end) {
    const std::lock_guard guard(end.mutex);
    std::vector<std::vector<std::byte>> batches;
    for (const NetworkEnd::News &each : end.news)
        if (const auto *const came = std::get_if<NetworkEnd::Came>(&each)) {
            MessageHeader header;
            std::memcpy(&header, came->head.data(), sizeof header);
            if (header.kind == MessageKind::batch) batches.push_back(came->bytes);
        }
    return batches;
}

// The held messages are posted before a message to another peer, before a message that does not fit
// into the network message, and at the end of the call.
void a_batch_is_for_one_peer_and_one_network_message() {
    struct Sent {
        uint32_t peer, instance;
        size_t bytes;
    };
    static constexpr Sent all[] = {{1, 0, 3000}, {1, 1, 900},  {2, 0, 100}, {1, 2, 3500},
                                   {1, 3, 3500}, {1, 4, 3500}, {2, 1, 7000}};
    run_ranks(Kind::inproc_apart, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::ring));
        CHECK_OK(begin(*transport, call_number(2), 30s));
        rank.meeting.barrier(); // during a call, only the rank itself makes progress
        if (rank.rank == 0) {
            std::byte *const data = transport->outbox().data();
            for (const Sent &each : all) {
                std::memset(data, static_cast<int>(10 * each.peer + each.instance), each.bytes);
                CHECK_OK(transport->send(each.peer, {.instance = each.instance},
                                         MessageView{data, each.bytes, 0, 0},
                                         Transport::Sends::with_next));
            }
            CHECK_OK(transport->end());
            std::vector<size_t> sizes[3];
            for (const uint32_t peer : {1U, 2U})
                for (const auto &batch : untaken_batches(end_of(peer)))
                    sizes[peer].push_back(batch.size());
            CHECK(sizes[1] == std::vector<size_t>({3932, 7032, 3516}));
            CHECK(sizes[2] == std::vector<size_t>({116, 7016}));
        }
        rank.meeting.barrier();
        for (const Sent &each : all)
            if (each.peer == rank.rank) {
                const size_t room_bytes = transport->inbox().size() / transport->slots();
                const RecvBuffer buffer{
                    transport->slots() + each.instance,
                    transport->inbox().subspan(each.instance * room_bytes, 7000)};
                const auto view = receive(*transport, 0, {.instance = each.instance}, buffer);
                CHECK_OK(view);
                CHECK_EQ(view->bytes, each.bytes);
                CHECK(holds_only(*view, std::byte(10 * each.peer + each.instance)));
                transport->release(*view);
            }
        if (rank.rank != 0) CHECK_OK(transport->end());
        rank.meeting.barrier();
    });
}

// A call ends when its batches have been sent, as with all messages: a rank that computes after its
// call makes no progress for its peers.
void a_call_ends_when_its_batches_have_gone() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::ring));
        rank.meeting.barrier();
        CHECK_OK(begin(*transport, call_number(2), 30s));
        if (rank.rank == 0) {
            NetworkEnd &end = end_of(0);
            end.is_slow = true;
            CHECK_OK(transport->send(1, {.instance = 0}, *free_view(*transport),
                                     Transport::Sends::with_next));
            CHECK_OK(transport->end());
            const std::lock_guard guard(end.mutex);
            CHECK(std::none_of(end.news.begin(), end.news.end(), [](const auto &each) {
                return std::holds_alternative<NetworkEnd::Sent>(each);
            }));
            end.is_slow = false;
        } else {
            const RecvBuffer buffer{transport->slots(), transport->inbox().first(4096)};
            const auto view = receive(*transport, 0, {.instance = 0}, buffer);
            CHECK_OK(view);
            transport->release(*view);
            CHECK_OK(transport->end());
        }
        rank.meeting.barrier();
    });
}

// A batch of another release, or one that was damaged on its way, has lengths that go past its end.
void a_damaged_batch_fails_the_communicator() {
    for (const bool is_cut : {false, true})
        run_ranks(Kind::inproc_apart, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(begin(*transport, call_number(1), 30s));
            rank.meeting.barrier();
            if (rank.rank == 1) {
                const MessageView view = *free_view(*transport);
                CHECK_OK(transport->send(0, {.ordinal = 0}, view, Transport::Sends::with_next));
                CHECK_OK(transport->send(0, {.ordinal = 1}, view, Transport::Sends::at_once));
            } else {
                NetworkEnd &end = end_of(0);
                await([&] { return count_untaken(end) != 0; });
                CHECK_EQ(count_untaken(end), 1U);
                NetworkEnd::Came batch = take_message(end);
                CHECK_EQ(batch.bytes.size(), 2 * (sizeof(BatchEntry) + 8));
                constexpr uint64_t far_too_many = UINT64_MAX;
                if (is_cut)
                    batch.bytes.resize(batch.bytes.size() - 9);
                else
                    std::memcpy(batch.bytes.data() + offsetof(BatchEntry, bytes), &far_too_many,
                                sizeof far_too_many);
                deliver(end, batch, batch.bytes.size());
                const auto failure = transport->failure();
                CHECK(failure.has_value());
                check_error(*failure, Code::damaged_data, 1,
                            "a batch of messages from rank 1 is damaged");
            }
            rank.meeting.barrier();
        });
}

// When the receiver learns that the sender has left, the last message has arrived but has no buffer
// yet. The message must still be received.
template <Kind kind> void mail_of_who_has_left_waits_for_its_room() {
    run_ranks(kind, 2, [](const Rank &rank) {
        auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            for (uint32_t i = 0; i < 2; i++)
                CHECK_OK(transport->send(1, {.instance = i},
                                         MessageView{transport->outbox().data() + i * 8, 8, 0, i},
                                         Transport::Sends::at_once));
            CHECK_OK(transport->end());
            transport.reset();
            return;
        }
        const RecvBuffer buffer = free_buffer(*transport);
        const auto received = [&](uint32_t instance) {
            const auto view = transport->receive(0, {.instance = instance}, buffer);
            CHECK_OK(view);
            return *view;
        };
        std::optional<MessageView> first, second;
        const WaitScope waiting(*transport);
        while (!(first = received(0))) CHECK_OK(transport->wait(0));
        for (const auto start = Clock::now(); Clock::now() - start < 500ms;) {
            CHECK(!received(1));
            CHECK_OK(transport->wait(0));
        }
        transport->release(*first);
        while (!(second = received(1))) CHECK_OK(transport->wait(0));
        transport->release(*second);
    });
}

// A message that rank 0 does not wait for has arrived from a rank that is then lost. The wait for
// another message of that rank must end.
void mail_that_nobody_asks_for_keeps_no_wait_going() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 10s));
        if (rank.rank == 1)
            CHECK_OK(transport->send(0, {.instance = 1}, *free_view(*transport),
                                     Transport::Sends::at_once));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            end_of(0).tell(NetworkEnd::Lost{1});
            const RecvBuffer buffer = free_buffer(*transport);
            Done done;
            while (done) {
                done = outcome(transport->receive(1, {.instance = 0}, buffer));
                if (done) done = transport->wait(1);
            }
            check_error(done.error(), Code::peer_lost, 1, done.error().text);
        }
        rank.meeting.barrier();
    });
}

// The messages have two parts, as with a zero-copy reference. The longest arrive in several pieces,
// which UCX assembles in memory that must not be touched after it is given back. The mmap threshold
// makes malloc unmap such memory at once.
template <Kind kind> void awaited_mail_comes_to_its_room() {
    mallopt(M_MMAP_THRESHOLD, 4096);
    constexpr size_t most = size_t{4} << 20, head = 24;
    TransportOptions options;
    options.outbox_bytes = 2 * most;
    options.slots = 2;
    run_ranks(
        kind, 2,
        [](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(begin(*transport, call_number(1), 30s));
            const RecvBuffer buffer{transport->slots(), transport->inbox().first(most)};
            std::byte *const data = transport->outbox().data();
            const auto at = [](size_t i) { return std::byte(i * 7 + i / 251); };
            uint32_t instance = 0;
            for (const size_t bytes : {0, 1, 5000, 9000, 70'000, 1'100'000, 4'000'000}) {
                const MessageTag tag{.instance = instance++};
                const auto asked = [&] {
                    const auto view = transport->receive(0, tag, buffer);
                    CHECK_OK(view);
                    return *view;
                };
                if (rank.rank == 1) CHECK(!asked());
                rank.meeting.barrier();
                if (rank.rank == 0) {
                    for (size_t i = 0; i < head + bytes; i++) data[i] = at(i);
                    CHECK_OK(transport->send(
                        1, tag,
                        MessageView{data, head, 0, 0, {.data = data + head, .bytes = bytes}},
                        Transport::Sends::at_once));
                    const WaitScope waiting(*transport);
                    while (!transport->is_free(0)) CHECK_OK(transport->wait(1));
                    continue;
                }
                std::optional<MessageView> view;
                const WaitScope waiting(*transport);
                while (!(view = asked())) CHECK_OK(transport->wait(0));
                CHECK_EQ(view->bytes, head + bytes);
                CHECK(view->data == buffer.memory.data());
                CHECK(!transport->is_free(buffer.slot));
                for (size_t i = 0; i < view->bytes; i++) CHECK(view->data[i] == at(i));
                transport->release(*view);
                CHECK(transport->is_free(buffer.slot));
            }
            CHECK_OK(transport->end());
            rank.meeting.barrier();
        },
        options);
}

// A call is given up while a message is on its way to its buffer, or when the message has just
// arrived there. The buffer must become free.
template <Kind kind> void a_call_that_is_given_up_leaves_no_buffer_taken() {
    constexpr size_t bytes = RemoteEndpoint::most_unacked(1) + 4096; // waits at the sender
    TransportOptions options;
    options.outbox_bytes = 2 * bytes;
    options.slots = 2;
    for (const bool comes_before : {false, true})
        run_ranks(
            kind, 2,
            [&](const Rank &rank) {
                const auto transport = create(rank);
                CHECK_OK(run(*transport, call_number(1), Way::ring));
                CHECK_OK(begin(*transport, call_number(2), 30s));
                if (rank.rank == 0) {
                    CHECK_OK(transport->send(1, {},
                                             MessageView{transport->outbox().data(), bytes, 0, 0},
                                             Transport::Sends::at_once));
                    CHECK_OK(transport->end());
                    rank.meeting.barrier();
                    return;
                }
                const uint32_t slot = transport->slots();
                while (transport->is_free(slot)) {
                    CHECK_OK(transport->receive(0, {}, {slot, transport->inbox().first(bytes)}));
                    if (transport->is_free(slot)) CHECK_OK(transport->wait(0));
                }
                // `failure` processes the messages that have arrived.
                const auto look = [&] { CHECK(!transport->failure()); };
                for (const auto start = Clock::now(); comes_before && Clock::now() - start < 200ms;)
                    look();
                CHECK_OK(begin(*transport, call_number(3), 30s));
                await([&] {
                    look();
                    return transport->is_free(slot);
                });
                rank.meeting.barrier();
            },
            options);
}

// Only one rank notices the failure, in a send or a receive and not in a wait. The ranks of all
// hosts must get the error.
void all_hosts_hear_of_a_step_that_fails() {
    for (const bool is_lost : {true, false})
        run_ranks(Kind::inproc_apart, 3, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::mailbox));
            rank.meeting.barrier();
            if (rank.rank == 0 && is_lost) end_of(0).tell(NetworkEnd::Lost{1});
            CHECK_OK(begin(*transport, call_number(2), 10s));
            transport->progress();  // which a begin so soon after another leaves out
            rank.meeting.barrier(); // a rank that begins later may get the failure at once
            RecvBuffer buffer = free_buffer(*transport);
            buffer.memory = buffer.memory.first(7);
            if (rank.rank == 1 && !is_lost) CHECK_OK(send(*transport, 0, *free_view(*transport)));
            Done done;
            while (done && rank.rank != 0) done = transport->wait(0);
            while (done && is_lost)
                done = outcome(
                    transport->send(1, {}, *free_view(*transport), Transport::Sends::at_once));
            while (done) {
                done = outcome(transport->receive(1, {}, buffer));
                if (done) done = transport->wait(1);
            }
            check_error(done.error(), is_lost ? Code::peer_lost : Code::damaged_data, 1,
                        done.error().text);
            rank.meeting.barrier();
        });
}

// If there is no memory to keep a message in, the communicator fails, and no receive finds the
// message.
void mail_that_cannot_be_kept_is_gone() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            CHECK_OK(send(*transport, 0, *free_view(*transport)));
        } else {
            NetworkEnd &end = end_of(0);
            deliver(end, take_message(end), SIZE_MAX);
            CHECK(transport->failure().has_value());
            const RecvBuffer buffer = free_buffer(*transport);
            const auto received =
                transport->receive(1, {}, {buffer.slot, {buffer.memory.data(), SIZE_MAX}});
            CHECK_OK(received);
            CHECK(!*received);
        }
        rank.meeting.barrier();
    });
}

// A broken rank sends a message of another call in front of the one that the posted receive asks
// for. The right one has its buffer then, but the wrong one fails the communicator.
void a_message_of_another_call_is_not_passed_over() {
    run_ranks(Kind::inproc_apart, 2, [&](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        const RecvBuffer buffer = free_buffer(*transport);
        if (rank.rank == 0) CHECK(!*transport->receive(1, {}, buffer));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            CHECK_OK(send(*transport, 0, *free_view(*transport)));
        } else {
            NetworkEnd &end = end_of(0);
            NetworkEnd::Came message = take_message(end);
            MessageHeader header;
            std::memcpy(&header, message.head.data(), sizeof header);
            for (const uint64_t hash : {header.hash + 1, header.hash}) {
                std::memcpy(message.head.data() + offsetof(MessageHeader, hash), &hash,
                            sizeof hash);
                deliver(end, message, message.bytes.size());
            }
            CHECK(!transport->is_free(buffer.slot));
            const auto received = transport->receive(1, {}, buffer);
            CHECK(!received);
            check_error(
                received.error(), Code::internal_error, Error::no_rank,
                "a message came that call 1 does not know, though all ranks agree about it");
            CHECK(transport->failure().has_value());
        }
        rank.meeting.barrier();
    });
}

// A failure with impossible values comes from another release or a broken one. The error then names
// the rank that sent it.
template <Kind kind> void a_failure_that_makes_no_sense_is_its_tellers() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 0) transport->fail(Error::make(Code(99), "nonsense").at_rank(1000));
        await([&] { return transport->failure().has_value(); });
        if (rank.rank == 1)
            check_error(*transport->failure(), Code::remote_error, 0,
                        "rank 0 says that the communicator has failed, but not why");
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(strangers_messages_are_thrown_away),
        ON_APART(nobody_is_sent_more_than_it_may_keep),
        ON_APART(small_messages_go_as_one),
        QTEST(a_batch_is_for_one_peer_and_one_network_message),
        QTEST(a_call_ends_when_its_batches_have_gone),
        QTEST(a_damaged_batch_fails_the_communicator),
        ON_APART(mail_of_who_has_left_waits_for_its_room),
        QTEST(mail_that_nobody_asks_for_keeps_no_wait_going),
        ON_APART(awaited_mail_comes_to_its_room),
        ON_APART(a_call_that_is_given_up_leaves_no_buffer_taken),
        QTEST(all_hosts_hear_of_a_step_that_fails),
        QTEST(mail_that_cannot_be_kept_is_gone),
        QTEST(a_message_of_another_call_is_not_passed_over),
        ON_APART(a_failure_that_makes_no_sense_is_its_tellers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
