// transport/courier: letters that are not the ranks' own change nothing, and mail stays in bounds.
#include "transport_ways.hpp"

#include "transport/courier.hpp"
#include "transport/letter.hpp"

#include <malloc.h>

using namespace qccl;
using namespace qtest;

namespace {

bool holds_only(const Wire &wire, std::byte value) {
    return std::all_of(wire.data, wire.data + wire.bytes,
                       [&](std::byte each) { return each == value; });
}

// Whoever finds a rank's port can write to it, but does not know the ranks' session; and no rank
// gets letters from its own host.
void strangers_letters_are_thrown_away() {
    run_ranks(Kind::inproc_pairs, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mail));
        rank.meeting.barrier();
        if (rank.rank == 3) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &living : memory_network::living().ends)
                for (const uint32_t from : {0U, 3U, 99U}) {
                    const Error forged = Error::make(Code::revoked, "forged");
                    const auto *const bytes = reinterpret_cast<const std::byte *>(&forged);
                    Letter letter{.kind = LetterKind::verdict, .from = from};
                    const auto *const head = reinterpret_cast<const std::byte *>(&letter);
                    living.first->tell(NetworkEnd::Came{
                        {head, head + sizeof letter}, {bytes, bytes + sizeof forged}, {}});
                    letter.kind = LetterKind::left;
                    living.first->tell(NetworkEnd::Came{{head, head + sizeof letter}, {}, {}});
                    living.first->tell(NetworkEnd::Came{{head, head + 7}, {}, {}});
                }
        }
        rank.meeting.barrier();
        for (uint64_t call = 2; call <= 5; call++)
            CHECK_OK(run(*transport, call_number(call), Way::mail));
        CHECK(!transport->failure());
        rank.meeting.barrier();
    });
}

// Rank 1 takes nothing for a while: what it has not asked for stays within bounds, and the rest
// waits at rank 0, until rank 1 has room again.
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
                CHECK_OK(transport->send(1, {.instance = i}, Wire{data, bytes, 0, i},
                                         Transport::Sends::at_once));
            }
            look_around();
            constexpr uint64_t pushed = Courier::most_untaken(1) / bytes;
            if (rank.rank == 0) CHECK_EQ(under_way(), messages - pushed);
            rank.meeting.barrier();
            for (uint32_t i = 0; i < messages && rank.rank == 1; i++) {
                const Room room{transport->slots() + i,
                                transport->inbox().subspan(i * bytes, bytes)};
                const auto wire = receive(*transport, 0, {.instance = i}, room);
                CHECK_OK(wire);
                CHECK_EQ(wire->bytes, bytes);
                CHECK(holds_only(*wire, std::byte(i + 1)));
                transport->release(*wire);
            }
            while (rank.rank == 0 && under_way() != 0) CHECK_OK(transport->wait(1));
            CHECK_OK(transport->end());
            // Now that it has been said, others may go.
            CHECK_OK(begin(*transport, call_number(3), 30s));
            if (rank.rank == 0)
                CHECK_OK(transport->send(1, {}, Wire{transport->outbox().data(), bytes, 0, 0},
                                         Transport::Sends::at_once));
            look_around();
            CHECK_EQ(under_way(), 0U);
            rank.meeting.barrier();
        },
        options);
}

// Rank 0's small messages, of which the first ones wait for the last, or for its wait.
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
                CHECK_OK(transport->send(1, {.instance = i}, Wire{data, bytes, 0, i},
                                         waits ? Transport::Sends::with_next
                                               : Transport::Sends::at_once));
                // What waits for the next is a copy.
                CHECK(transport->is_free(i));
                std::memset(data, 0xff, bytes);
            }
            if (rank.rank == 0 && !has_last) CHECK_OK(transport->wait(1));
            for (uint32_t i = messages; i-- > 0 && rank.rank == 1;) {
                const Room room{transport->slots() + i,
                                transport->inbox().subspan(i * bytes, bytes)};
                const auto wire = receive(*transport, 0, {.instance = i}, room);
                CHECK_OK(wire);
                CHECK_EQ(wire->bytes, bytes);
                CHECK(holds_only(*wire, std::byte(i + call)));
                transport->release(*wire);
            }
            CHECK_OK(transport->end());
        }
        rank.meeting.barrier();
    });
}

// Of the network, on a host of its own: a rank introduces the others alone.
NetworkEnd &end_of(uint32_t rank) {
    const std::lock_guard guard(memory_network::living().mutex);
    for (const auto &[end, _] : memory_network::living().ends)
        if (!end->peers[rank]) return *end;
    throw Failure{"no such end"};
}

// How many messages have come to an end and have not been looked at.
size_t count_untaken(NetworkEnd &end) {
    const std::lock_guard guard(end.mutex);
    return static_cast<size_t>(
        std::count_if(end.news.begin(), end.news.end(), [](const NetworkEnd::News &each) {
            return std::holds_alternative<NetworkEnd::Came>(each);
        }));
}

// The batches among what has come to an end and has not been looked at.
std::vector<std::vector<std::byte>> untaken_batches(NetworkEnd &end) {
    const std::lock_guard guard(end.mutex);
    std::vector<std::vector<std::byte>> batches;
    for (const NetworkEnd::News &each : end.news)
        if (const auto *const came = std::get_if<NetworkEnd::Came>(&each)) {
            Letter letter;
            std::memcpy(&letter, came->head.data(), sizeof letter);
            if (letter.kind == LetterKind::batch) batches.push_back(came->bytes);
        }
    return batches;
}

// Another peer's message, one that the network message has no room for, and the call's end: each
// has what is held posted first.
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
        rank.meeting.barrier(); // in their calls, ranks look for themselves alone
        if (rank.rank == 0) {
            std::byte *const data = transport->outbox().data();
            for (const Sent &each : all) {
                std::memset(data, static_cast<int>(10 * each.peer + each.instance), each.bytes);
                CHECK_OK(transport->send(each.peer, {.instance = each.instance},
                                         Wire{data, each.bytes, 0, 0},
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
                const Room room{transport->slots() + each.instance,
                                transport->inbox().subspan(each.instance * room_bytes, 7000)};
                const auto wire = receive(*transport, 0, {.instance = each.instance}, room);
                CHECK_OK(wire);
                CHECK_EQ(wire->bytes, each.bytes);
                CHECK(holds_only(*wire, std::byte(10 * each.peer + each.instance)));
                transport->release(*wire);
            }
        if (rank.rank != 0) CHECK_OK(transport->end());
        rank.meeting.barrier();
    });
}

// As of all mail: a rank that computes after its call moves nothing for its peers.
void a_call_ends_when_its_batches_have_gone() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::ring));
        rank.meeting.barrier();
        CHECK_OK(begin(*transport, call_number(2), 30s));
        if (rank.rank == 0) {
            NetworkEnd &end = end_of(0);
            end.is_slow = true;
            CHECK_OK(transport->send(1, {.instance = 0}, *free_wire(*transport),
                                     Transport::Sends::with_next));
            CHECK_OK(transport->end());
            const std::lock_guard guard(end.mutex);
            CHECK(std::none_of(end.news.begin(), end.news.end(), [](const auto &each) {
                return std::holds_alternative<NetworkEnd::Sent>(each);
            }));
            end.is_slow = false;
        } else {
            const Room room{transport->slots(), transport->inbox().first(4096)};
            const auto wire = receive(*transport, 0, {.instance = 0}, room);
            CHECK_OK(wire);
            transport->release(*wire);
            CHECK_OK(transport->end());
        }
        rank.meeting.barrier();
    });
}

// Of another release, or broken on its way: the lengths within a batch go on behind its end.
void a_damaged_batch_fails_the_communicator() {
    for (const bool is_cut : {false, true})
        run_ranks(Kind::inproc_apart, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(begin(*transport, call_number(1), 30s));
            rank.meeting.barrier();
            if (rank.rank == 1) {
                const Wire wire = *free_wire(*transport);
                CHECK_OK(transport->send(0, {.ordinal = 0}, wire, Transport::Sends::with_next));
                CHECK_OK(transport->send(0, {.ordinal = 1}, wire, Transport::Sends::at_once));
            } else {
                NetworkEnd &end = end_of(0);
                await([&] { return count_untaken(end) != 0; });
                CHECK_EQ(count_untaken(end), 1U);
                std::optional<NetworkEnd::Came> batch;
                {
                    const std::lock_guard guard(end.mutex);
                    batch = std::move(std::get<NetworkEnd::Came>(end.news.front()));
                    end.news.clear();
                }
                CHECK_EQ(batch->bytes.size(), 2 * (sizeof(BatchEntry) + 8));
                constexpr uint64_t far_too_many = UINT64_MAX;
                if (is_cut)
                    batch->bytes.resize(batch->bytes.size() - 9);
                else
                    std::memcpy(batch->bytes.data() + offsetof(BatchEntry, bytes), &far_too_many,
                                sizeof far_too_many);
                end.events.came(end.events.context, batch->head.data(), batch->head.size(),
                                batch->bytes.data(), batch->bytes.size(), nullptr);
                const auto failure = transport->failure();
                CHECK(failure.has_value());
                check_error(*failure, Code::damaged_data, 1,
                            "a batch of messages from rank 1 is damaged");
            }
            rank.meeting.barrier();
        });
}

// The last message has come, and has no room yet, when its sender is known to have left.
template <Kind kind> void mail_of_who_has_left_waits_for_its_room() {
    run_ranks(kind, 2, [](const Rank &rank) {
        auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            for (uint32_t i = 0; i < 2; i++)
                CHECK_OK(transport->send(1, {.instance = i},
                                         Wire{transport->outbox().data() + i * 8, 8, 0, i},
                                         Transport::Sends::at_once));
            CHECK_OK(transport->end());
            transport.reset();
            return;
        }
        const Room room = free_room(*transport);
        const auto received = [&](uint32_t instance) {
            const auto wire = transport->receive(0, {.instance = instance}, room);
            CHECK_OK(wire);
            return *wire;
        };
        std::optional<Wire> first, second;
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

// A message that rank 0 does not wait for has come from a rank that it can no longer hear.
void mail_that_nobody_asks_for_keeps_no_wait_going() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 10s));
        if (rank.rank == 1)
            CHECK_OK(transport->send(0, {.instance = 1}, *free_wire(*transport),
                                     Transport::Sends::at_once));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            end_of(0).tell(NetworkEnd::Lost{1});
            const Room room = free_room(*transport);
            Done done;
            while (done) {
                done = outcome(transport->receive(1, {.instance = 0}, room));
                if (done) done = transport->wait(1);
            }
            check_error(done.error(), Code::peer_lost, 1, done.error().text);
        }
        rank.meeting.barrier();
    });
}

// In two parts, as what goes with a loan. The longest come in several pieces, which UCX puts
// together in memory that nobody may touch once it is given back: here it is gone by then.
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
            const Room room{transport->slots(), transport->inbox().first(most)};
            std::byte *const data = transport->outbox().data();
            const auto at = [](size_t i) { return std::byte(i * 7 + i / 251); };
            uint32_t instance = 0;
            for (const size_t bytes : {0, 1, 5000, 9000, 70'000, 1'100'000, 4'000'000}) {
                const MessageTag tag{.instance = instance++};
                const auto asked = [&] {
                    const auto wire = transport->receive(0, tag, room);
                    CHECK_OK(wire);
                    return *wire;
                };
                if (rank.rank == 1) CHECK(!asked());
                rank.meeting.barrier();
                if (rank.rank == 0) {
                    for (size_t i = 0; i < head + bytes; i++) data[i] = at(i);
                    CHECK_OK(transport->send(
                        1, tag, Wire{data, head, 0, 0, {.data = data + head, .bytes = bytes}},
                        Transport::Sends::at_once));
                    while (!transport->is_free(0)) CHECK_OK(transport->wait(1));
                    continue;
                }
                std::optional<Wire> wire;
                while (!(wire = asked())) CHECK_OK(transport->wait(0));
                CHECK_EQ(wire->bytes, head + bytes);
                CHECK(wire->data == room.memory.data());
                CHECK(!transport->is_free(room.slot));
                for (size_t i = 0; i < wire->bytes; i++) CHECK(wire->data[i] == at(i));
                transport->release(*wire);
                CHECK(transport->is_free(room.slot));
            }
            CHECK_OK(transport->end());
            rank.meeting.barrier();
        },
        options);
}

// A message that is on its way to its room when its call is given up, or has just come there.
template <Kind kind> void a_call_that_is_given_up_leaves_no_room_taken() {
    constexpr size_t bytes = Courier::most_untaken(1) + 4096; // waits at its sender
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
                    CHECK_OK(transport->send(1, {}, Wire{transport->outbox().data(), bytes, 0, 0},
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
                // Asked for a failure, a transport looks what has come.
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

// What only one rank has found out, when it sends or receives, not while it waits.
void all_hosts_hear_of_a_step_that_fails() {
    for (const bool is_lost : {true, false})
        run_ranks(Kind::inproc_apart, 3, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::mail));
            rank.meeting.barrier();
            if (rank.rank == 0 && is_lost) end_of(0).tell(NetworkEnd::Lost{1});
            CHECK_OK(begin(*transport, call_number(2), 10s));
            rank.meeting.barrier(); // who begins later may hear of the failure at once
            Room room = free_room(*transport);
            room.memory = room.memory.first(7);
            if (rank.rank == 1 && !is_lost) CHECK_OK(send(*transport, 0, *free_wire(*transport)));
            Done done;
            while (done && rank.rank != 0) done = transport->wait(0);
            while (done && is_lost)
                done = outcome(
                    transport->send(1, {}, *free_wire(*transport), Transport::Sends::at_once));
            while (done) {
                done = outcome(transport->receive(1, {}, room));
                if (done) done = transport->wait(1);
            }
            check_error(done.error(), is_lost ? Code::peer_lost : Code::damaged_data, 1,
                        done.error().text);
            rank.meeting.barrier();
        });
}

// Where there is no memory to keep a message in, the communicator fails, and nobody finds it.
void mail_that_cannot_be_kept_is_gone() {
    run_ranks(Kind::inproc_apart, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            CHECK_OK(send(*transport, 0, *free_wire(*transport)));
        } else {
            NetworkEnd &end = end_of(0);
            std::optional<NetworkEnd::Came> mail;
            await([&] {
                const std::lock_guard guard(end.mutex);
                for (NetworkEnd::News &news : end.news)
                    if (auto *const came = std::get_if<NetworkEnd::Came>(&news))
                        mail = std::move(*came);
                if (mail) end.news.clear();
                return mail.has_value();
            });
            end.events.came(end.events.context, mail->head.data(), mail->head.size(),
                            mail->bytes.data(), SIZE_MAX, nullptr);
            CHECK(transport->failure().has_value());
            const Room room = free_room(*transport);
            const auto received =
                transport->receive(1, {}, {room.slot, {room.memory.data(), SIZE_MAX}});
            CHECK_OK(received);
            CHECK(!*received);
        }
        rank.meeting.barrier();
    });
}

// Another release, or a broken one.
template <Kind kind> void a_failure_that_makes_no_sense_is_its_tellers() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mail));
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
        QTEST(strangers_letters_are_thrown_away),
        ON_APART(nobody_is_sent_more_than_it_may_keep),
        ON_APART(small_messages_go_as_one),
        QTEST(a_batch_is_for_one_peer_and_one_network_message),
        QTEST(a_call_ends_when_its_batches_have_gone),
        QTEST(a_damaged_batch_fails_the_communicator),
        ON_APART(mail_of_who_has_left_waits_for_its_room),
        QTEST(mail_that_nobody_asks_for_keeps_no_wait_going),
        ON_APART(awaited_mail_comes_to_its_room),
        ON_APART(a_call_that_is_given_up_leaves_no_room_taken),
        QTEST(all_hosts_hear_of_a_step_that_fails),
        QTEST(mail_that_cannot_be_kept_is_gone),
        ON_APART(a_failure_that_makes_no_sense_is_its_tellers),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
