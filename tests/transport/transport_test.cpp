// Tests the transport: messages arrive whole, once, and in any order of asking, and memory is
// reused only when no rank reads it. The same bodies run over threads and over processes.
#include "transport_ways.hpp"

#include <algorithm>
#include <numeric>
#include <random>

using namespace qccl;
using namespace qtest;

namespace {

std::byte pattern(uint64_t seed, size_t i) {
    return static_cast<std::byte>((seed * 0x9E3779B97F4A7C15 + i * 0xBF58476D1CE4E5B9) >> 56);
}

void write_pattern(std::byte *to, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++) to[i] = pattern(seed, i);
}

bool holds_pattern(const std::byte *from, size_t bytes, uint64_t seed) {
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != pattern(seed, i)) return false;
    return true;
}

void send(Transport &transport, uint32_t peer, MessageTag tag, const MessageView &view) {
    for (const WaitScope waiting(transport);;) {
        const auto sent = transport.send(peer, tag, view, Transport::Sends::at_once);
        CHECK_OK(sent);
        if (*sent) return;
        CHECK_OK(transport.wait(peer));
    }
}

MessageView receive(Transport &transport, uint32_t peer, MessageTag tag) {
    const RecvBuffer buffer = free_buffer(transport);
    for (const WaitScope waiting(transport);;) {
        const auto received = transport.receive(peer, tag, buffer);
        CHECK_OK(received);
        if (*received) return **received;
        CHECK_OK(transport.wait(peer));
    }
}

void await_free(Transport &transport, uint32_t slot) {
    const WaitScope waiting(transport);
    while (!transport.is_free(slot)) CHECK_OK(transport.wait(transport.rank()));
}

// Returns a view of `bytes` bytes in a slot; the outbox is divided evenly among the slots.
MessageView own_wire(Transport &transport, uint32_t slot, size_t bytes) {
    const size_t stride = transport.outbox().size() / transport.slots();
    CHECK(bytes <= stride);
    return {transport.outbox().data() + slot * stride, bytes, transport.rank(), slot};
}

MessageView fill(Transport &transport, uint32_t slot, size_t bytes, uint64_t seed) {
    const MessageView view = own_wire(transport, slot, bytes);
    write_pattern(transport.outbox().data() + (view.data - transport.outbox().data()), bytes, seed);
    return view;
}

void dawdle(std::minstd_rand &random) {
    const auto die = random() % 64;
    if (die == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
    else if (die < 8)
        sched_yield();
}

// Sizes and readers follow from the number of the exchange, so every rank knows the sizes that all
// others post.
size_t slot_bytes(uint32_t rank, uint64_t exchange) {
    std::minstd_rand random(static_cast<uint32_t>(exchange * 64 + rank + 1));
    random.discard(3);
    return random() % 4 == 0 ? random() % 4097 : random() % 64;
}

template <Kind kind> void eager_slots_carry_every_exchange() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        std::minstd_rand random(rank.rank + 1);
        for (uint64_t e = 1; e <= 1500; e++) {
            if (e % 3 != 0) CHECK_OK(begin(*transport, call_number(e - e / 3), 30s));
            dawdle(random);
            const size_t bytes = slot_bytes(rank.rank, e);
            const auto slot = transport->eager_slot(bytes);
            CHECK_OK(slot);
            CHECK_EQ(reinterpret_cast<uintptr_t>(*slot) % 32, 0U);
            write_pattern(*slot, bytes, e * 16 + rank.rank);
            transport->post_eager(bytes);
            std::vector<std::pair<uint32_t, std::span<const std::byte>>> seen;
            for (uint32_t peer = 0; peer < rank.size; peer++) {
                if (random() % 4 == 0) continue;
                const auto theirs = transport->await_eager(peer);
                CHECK_OK(theirs);
                CHECK_EQ(theirs->size(), slot_bytes(peer, e));
                seen.emplace_back(peer, *theirs);
            }
            dawdle(random);
            for (const auto &[peer, theirs] : seen)
                CHECK(holds_pattern(theirs.data(), theirs.size(), e * 16 + peer));
        }
    });
}

// A call of one exchange: posts a pattern, and checks those of the ranks that it reads.
class PatternExchange final : public EagerExchange {
public:
    PatternExchange(const CallShape &of, const CallNumbers &own, uint32_t rank,
                    std::span<const uint32_t> read)
        : EagerExchange(of, own, 30s, slot_bytes(rank, own.call), read), rank_(rank) {}

    void write(std::byte *slot) override {
        CHECK_EQ(steps_++, 0U);
        write_pattern(slot, bytes, numbers.call * 16 + rank_);
    }
    void posted() override { CHECK_EQ(steps_++, 1U); }
    Done read(size_t number, std::span<const std::byte> slot) override {
        CHECK_EQ(steps_++, 2 + number);
        CHECK_EQ(slot.size(), slot_bytes(ranks[number], numbers.call));
        CHECK(holds_pattern(slot.data(), slot.size(), numbers.call * 16 + ranks[number]));
        return {};
    }
    size_t steps() const { return steps_; }

private:
    const uint32_t rank_;
    size_t steps_ = 0;
};

// Ranks that make calls by `exchange` and ranks that make them step by step get along, and agree on
// the calls.
template <Kind kind> void an_exchange_is_its_steps() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        std::minstd_rand random(rank.rank + 1);
        const CallShape shapes[] = {CallDescriptor{.count = 1}, CallDescriptor{.count = 2}};
        for (uint64_t call = 1; call <= 600; call++) {
            std::vector<uint32_t> read;
            for (uint32_t peer = 0; peer < rank.size; peer++)
                if (random() % 4 != 0) read.push_back(peer);
            std::shuffle(read.begin(), read.end(), random);
            PatternExchange exchange(shapes[call / 5 % 2], {.call = call}, rank.rank, read);
            dawdle(random);
            const bool takes_steps = (call / 50 + rank.rank) % 3 == 0;
            CHECK_OK(takes_steps ? transport->Transport::exchange(exchange)
                                 : transport->exchange(exchange));
            CHECK_EQ(exchange.steps(), 2 + read.size());
        }
        CHECK_OK(transport->confirm_calls(30s));
        const uint64_t hash = transport->calls_hash();
        std::vector<uint64_t> hashes(rank.size);
        CHECK_OK(rank.meeting.all_gather(rank.rank, &hash, hashes.data(), sizeof hash));
        for (const uint64_t other : hashes) CHECK_EQ(other, hash);
    });
}

// Ranks whose calls differ find that out in the exchange.
template <Kind kind> void an_exchange_of_another_call_is_a_mismatch() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        const CallShape same(CallDescriptor{.count = 1});
        const CallShape other(CallDescriptor{.count = uint64_t{rank.rank} + 2});
        const uint32_t peer = 1 - rank.rank;
        for (uint64_t call = 1; call <= 10; call++) {
            PatternExchange exchange(same, {.call = call}, rank.rank, {&peer, 1});
            CHECK_OK(transport->exchange(exchange));
        }
        PatternExchange exchange(other, {.call = 11}, rank.rank, {&peer, 1});
        const Done done = transport->exchange(exchange);
        CHECK(!done);
        CHECK(done.error().code == Code::mismatch);
        CHECK(std::strstr(done.error().text, "call 11") != nullptr);
    });
}

// Short slots let a rank be exchanges ahead of a peer that has posted nothing; long ones do not.
template <Kind kind> void a_rank_may_be_short_exchanges_ahead() {
    constexpr size_t short_bytes = 8, long_bytes = most_short_eager_bytes + 1;
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        const auto post = [&](uint64_t exchange) {
            const auto slot = transport->eager_slot(short_bytes);
            CHECK_OK(slot);
            write_pattern(*slot, short_bytes, exchange);
            transport->post_eager(short_bytes);
        };
        if (rank.rank == 0) {
            for (uint64_t exchange = 1; exchange < eager_slots_kept; exchange++) {
                CHECK(transport->is_eager_slot_free(short_bytes));
                post(exchange);
                CHECK(!transport->is_eager_slot_free(long_bytes));
            }
            CHECK(!transport->is_eager_slot_free(short_bytes));
        }
        rank.meeting.barrier();
        for (uint64_t exchange = 1; exchange < eager_slots_kept && rank.rank == 1; exchange++) {
            post(exchange);
            const auto theirs = transport->await_eager(0);
            CHECK_OK(theirs);
            CHECK(holds_pattern(theirs->data(), theirs->size(), exchange));
        }
        rank.meeting.barrier();
        CHECK(transport->is_eager_slot_free(long_bytes));
        CHECK_OK(transport->await_latest_exchange());
    });
}

template <Kind kind> void all_pairs_get_their_messages() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        std::minstd_rand random(rank.rank + 1);
        constexpr uint32_t messages = 12;
        for (uint64_t call = 1; call <= 100; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            std::vector<std::pair<uint32_t, uint32_t>> wanted;
            for (uint32_t peer = 0; peer < rank.size; peer++)
                for (uint32_t m = 0; m < messages && peer != rank.rank; m++)
                    wanted.emplace_back(peer, m);
            for (const auto &[peer, m] : wanted) {
                const uint32_t slot = peer * messages + m;
                await_free(*transport, slot);
                const uint64_t seed = ((call * 64 + rank.rank) * 64 + peer) * 64 + m;
                send(*transport, peer, {m % 3, m}, fill(*transport, slot, 64 + m, seed));
            }
            std::shuffle(wanted.begin(), wanted.end(), random);
            for (const auto &[peer, m] : wanted) {
                const MessageView view = receive(*transport, peer, {m % 3, m});
                CHECK_EQ(view.bytes, 64 + m);
                CHECK_EQ(view.origin, are_near(kind, peer, rank.rank) ? peer : rank.rank);
                const uint64_t seed = ((call * 64 + peer) * 64 + rank.rank) * 64 + m;
                CHECK(holds_pattern(view.data, view.bytes, seed));
                transport->release(view);
            }
        }
    });
}

// Rank 0's bytes go from rank to rank; every hop points to the same memory.
template <Kind kind> void chains_forward_by_reference() {
    run_ranks(kind, 5, [](const Rank &rank) {
        const auto transport = create(rank);
        const uint32_t last = rank.size - 1;
        for (uint64_t call = 1; call <= 50; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            if (rank.rank == 0) {
                CHECK(transport->is_free(7));
                send(*transport, 1, {}, fill(*transport, 7, 1000, call));
            } else {
                const MessageView view = receive(*transport, rank.rank - 1, {});
                CHECK_EQ(view.origin, 0U);
                CHECK_EQ(view.slot, 7U);
                if (rank.rank != last) send(*transport, rank.rank + 1, {}, view);
                if (rank.rank != last) transport->release(view);
                // All ranks but the last have released the bytes, and these are still there.
                rank.meeting.barrier();
                CHECK(holds_pattern(view.data, view.bytes, call));
                if (rank.rank == last) transport->release(view);
            }
            if (rank.rank == 0) rank.meeting.barrier();
            if (rank.rank == 0) await_free(*transport, 7);
            rank.meeting.barrier();
        }
    });
}

template <Kind kind> void a_slot_is_free_after_its_last_reader() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            const MessageView view = fill(*transport, 0, 10, 1);
            for (uint32_t peer = 1; peer < rank.size; peer++) send(*transport, peer, {}, view);
        }
        for (uint32_t releaser = 1; releaser < rank.size; releaser++) {
            rank.meeting.barrier();
            if (rank.rank == 0) CHECK(!transport->is_free(0));
            rank.meeting.barrier();
            if (rank.rank == releaser) transport->release(receive(*transport, 0, {}));
        }
        rank.meeting.barrier();
        if (rank.rank == 0) CHECK(transport->is_free(0));
    });
}

template <Kind kind> void full_mailboxes_say_so() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        uint32_t sent = 0;
        if (rank.rank == 0) {
            const MessageView view = fill(*transport, 0, 10, 1);
            for (;; sent++) {
                const auto result = transport->send(1, {0, sent}, view, Transport::Sends::at_once);
                CHECK_OK(result);
                if (!*result) break;
                CHECK(sent < 10000);
            }
            CHECK(sent >= 16);
            rank.meeting.board[0] = sent;
        }
        rank.meeting.barrier();
        // Receives in reverse order, so that all other messages are queued as unexpected meanwhile.
        if (rank.rank == 1)
            for (uint64_t left = rank.meeting.board[0]; left > 0; left--)
                transport->release(receive(*transport, 0, {0, static_cast<uint32_t>(left - 1)}));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            CHECK(transport->is_free(0));
            const auto result = transport->send(1, {0, sent}, own_wire(*transport, 0, 10),
                                                Transport::Sends::at_once);
            CHECK_OK(result);
            CHECK(*result);
        }
    });
}

// Each rank sends everything before it receives anything, so a rank must accept messages while it
// waits to send.
template <Kind kind> void floods_in_both_directions_pass() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        constexpr uint32_t messages = 500;
        const MessageView view = fill(*transport, 3, 100, rank.rank);
        for (uint32_t m = 0; m < messages; m++)
            for (uint32_t peer = 0; peer < rank.size; peer++)
                if (peer != rank.rank) send(*transport, peer, {m, m}, view);
        for (uint32_t m = 0; m < messages; m++)
            for (uint32_t peer = 0; peer < rank.size; peer++) {
                if (peer == rank.rank) continue;
                const MessageView theirs = receive(*transport, peer, {m, m});
                CHECK(holds_pattern(theirs.data, theirs.bytes, peer));
                transport->release(theirs);
            }
    });
}

// Few slots, many messages, random delays: a slot that is written too early would show.
template <Kind kind> void slots_are_used_again_safely() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        std::minstd_rand random(rank.rank + 1);
        const uint32_t next = (rank.rank + 1) % rank.size,
                       previous = (rank.rank + rank.size - 1) % rank.size;
        for (uint64_t round = 0; round < 1500; round++) {
            CHECK_OK(begin(*transport, call_number(round + 1), 30s));
            const auto slot = static_cast<uint32_t>(round % 2);
            await_free(*transport, slot);
            send(*transport, next, {0, 0}, fill(*transport, slot, 256, round * 3 + rank.rank));
            const MessageView first = receive(*transport, previous, {0, 0});
            send(*transport, next, {0, 1}, first);
            dawdle(random);
            CHECK(holds_pattern(first.data, first.bytes, round * 3 + previous));
            transport->release(first);
            const MessageView second = receive(*transport, previous, {0, 1});
            if (is_one_host(kind)) CHECK_EQ(second.origin, next);
            dawdle(random);
            CHECK(holds_pattern(second.data, second.bytes, round * 3 + next));
            transport->release(second);
        }
    });
}

// A rank that only sends may run ahead of ranks that only receive by as many calls as are kept, and
// by no more, however much buffer space there is for its messages.
template <Kind kind> void a_sender_may_run_ahead() {
    constexpr uint64_t ahead = are_near(kind, 0, 1) ? calls_kept_on_host : most_calls_kept;
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        const MessageView view = fill(*transport, 0, 100, 1);
        if (rank.rank == 1) await([&] { return rank.meeting.board[0] == ahead - 1; });
        for (uint64_t call = 1; call <= 1000; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            if (rank.rank == 0) {
                send(*transport, 1, {}, view);
                rank.meeting.board[0] = call;
            } else {
                if (call % 250 == 0) std::this_thread::sleep_for(20ms);
                CHECK(rank.meeting.board[0] <= call + ahead);
                transport->release(receive(*transport, 0, {}));
            }
        }
    });
}

template <Kind kind> void messages_of_a_call_given_up_stay_in_it() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            send(*transport, 1, {0, 1}, fill(*transport, 0, 10, 1));
            send(*transport, 1, {0, 2}, fill(*transport, 1, 10, 2));
        } else {
            transport->release(receive(*transport, 0, {0, 2}));
        }
        CHECK_OK(begin(*transport, call_number(2), 30s));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            CHECK(transport->is_free(0));
            send(*transport, 1, {0, 1}, fill(*transport, 2, 10, 3));
        } else {
            const MessageView view = receive(*transport, 0, {0, 1});
            CHECK_EQ(view.slot, 2U);
            CHECK(holds_pattern(view.data, view.bytes, 3));
            transport->release(view);
        }
    });
}

template <Kind kind> void nobody_leaves_a_meeting_before_all_have_come() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 100; call++) {
            if (call % 25 == rank.rank) std::this_thread::sleep_for(3ms);
            rank.meeting.board[rank.rank] = call;
            CHECK_OK(begin(*transport, call_number(call), 30s));
            CHECK_OK(transport->await_all());
            for (uint32_t peer = 0; peer < 4; peer++) CHECK(rank.meeting.board[peer] >= call);
        }
    });
}

// The first action of rank 0 in a call that is announced with its eager slot, and whether rank 1
// sees the call then.
struct FirstDeed {
    std::function<void(Transport &)> deed;
    bool is_published;
};

template <Kind kind> void a_call_is_published_behind_its_eager_slot_or_before_a_wait() {
    const FirstDeed cases[] = {
        {[](Transport &transport) { CHECK_OK(transport.eager_slot(8)); }, false},
        {[](Transport &transport) {
             CHECK_OK(transport.eager_slot(8));
             transport.post_eager(8);
         },
         true},
        {[](Transport &transport) { CHECK_OK(transport.wait(1)); }, true},
        {[](Transport &transport) { CHECK_OK(transport.end()); }, true},
    };
    for (const FirstDeed &first : cases)
        run_ranks(kind, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            const CallDescriptor call = call_number(1);
            if (rank.rank == 0) {
                CHECK_OK(transport->begin(call, {.call = 1}, 30s,
                                          Transport::Publishes::after_eager_slot));
                first.deed(*transport);
            }
            rank.meeting.barrier();
            if (rank.rank == 1) {
                CHECK_OK(begin(*transport, call, first.is_published ? 30s : 100ms));
                const Done met = transport->await_all();
                CHECK_EQ(met.is_ok(), first.is_published);
                if (!met)
                    check_late(met.error(), 0,
                               "rank 0 did not come to all_reduce, call 1, within 0.1 s", "rank 0");
            }
            rank.meeting.barrier();
        });
}

template <Kind kind> void one_rank_alone_works() {
    run_ranks(kind, 1, [](const Rank &rank) {
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 200; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            CHECK_OK(transport->await_all());
            const auto slot = transport->eager_slot(8);
            CHECK_OK(slot);
            write_pattern(*slot, 8, call);
            transport->post_eager(8);
            const auto own = transport->await_eager(0);
            CHECK_OK(own);
            CHECK(holds_pattern(own->data(), own->size(), call));
        }
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(eager_slots_carry_every_exchange),
        ON_ALL(an_exchange_is_its_steps),
        ON_BOTH(an_exchange_of_another_call_is_a_mismatch),
        ON_BOTH(a_rank_may_be_short_exchanges_ahead),
        ON_ALL(all_pairs_get_their_messages),
        ON_BOTH(chains_forward_by_reference),
        ON_BOTH(a_slot_is_free_after_its_last_reader),
        ON_BOTH(full_mailboxes_say_so),
        ON_ALL(floods_in_both_directions_pass),
        ON_ALL(slots_are_used_again_safely),
        ON_ALL(a_sender_may_run_ahead),
        ON_BOTH(messages_of_a_call_given_up_stay_in_it),
        ON_ALL(nobody_leaves_a_meeting_before_all_have_come),
        ON_BOTH(a_call_is_published_behind_its_eager_slot_or_before_a_wait),
        ON_BOTH(one_rank_alone_works),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
