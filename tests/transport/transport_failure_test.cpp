// Tests the transports when something goes wrong on one rank: every rank soon returns the same
// sentence about it, and messages that have arrived can still be received.
#include "transport_ways.hpp"

#include "memory/segment.hpp"

#include <csignal>

using namespace qccl;
using namespace qtest;

namespace {

template <Kind kind> void who_has_left_is_named_by_those_who_wait() {
    run_ranks(kind, 4, [](const Rank &rank) {
        auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 2) return; // its transport is destroyed
        for (uint64_t call = 2; call <= 3; call++)
            check_error(run(*transport, call_number(2), Way::mailbox).error(), Code::peer_lost, 2,
                        "rank 2 has left the communicator; all_reduce, call 2, waits for it");
    });
}

template <Kind kind> void what_a_rank_gave_before_it_left_arrives() {
    run_ranks(kind, 3, [](const Rank &rank) {
        auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            std::memset(transport->outbox().data(), 42, 8);
            CHECK_OK(send(*transport, 1, *free_view(*transport)));
            transport.reset();
            rank.meeting.barrier();
            return;
        }
        rank.meeting.barrier();
        if (rank.rank == 1) {
            // Long enough for rank 1 to check its peers: rank 0 is gone, but is not needed.
            const auto start = Clock::now();
            while (Clock::now() - start < 50ms) CHECK_OK(transport->wait(2));
            const auto view = receive(*transport, 0);
            CHECK_OK(view);
            CHECK(view->data[7] == std::byte{42});
            CHECK_OK(send(*transport, 2, *view));
            transport->release(*view);
        } else {
            const auto view = receive(*transport, 1);
            CHECK_OK(view);
            CHECK(view->data[0] == std::byte{42});
            transport->release(*view);
        }
    });
}

// Rank 0 sends and leaves exactly between rank 1's last look for a message and rank 1's check of
// its peers.
template <Kind kind> void what_came_at_the_last_moment_is_seen() {
    run_ranks(kind, 2, [](const Rank &plain) {
        Rank rank = plain;
        std::atomic<uint64_t> &gone = rank.meeting.board[0], &asked = rank.meeting.board[1];
        if (rank.rank == 1)
            rank.options.idle = [&] {
                asked = 1;
                await([&] { return gone == 1; });
            };
        auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            await([&] { return asked == 1; });
            CHECK_OK(send(*transport, 1, *free_view(*transport)));
            transport->leave();
            gone = 1;
        } else {
            const auto view = receive(*transport, 0);
            CHECK_OK(view);
            transport->release(*view);
        }
    });
}

template <Kind kind> void a_failure_from_any_thread_stops_every_rank() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK(!transport->failure());
        std::thread revoker;
        if (rank.rank == 3)
            revoker = std::thread([&] {
                std::this_thread::sleep_for(80ms); // the others sleep by then
                transport->fail(Error::make(Code::revoked, "rank 3 has had enough").at_rank(3));
                transport->fail(Error::make(Code::revoked, "nobody hears this"));
            });
        const auto start = Clock::now();
        Error error;
        // All ranks wait; only the revoking thread does something.
        CHECK_OK(begin(*transport, call_number(1), 30s));
        for (;;)
            if (const Done done = transport->wait((rank.rank + 1) % 4); !done) {
                error = done.error();
                break;
            }
        if (revoker.joinable()) revoker.join();
        CHECK(Clock::now() - start < 5s);
        check_error(error, Code::revoked, 3, "rank 3 has had enough");
        check_error(*transport->failure(), Code::revoked, 3, "rank 3 has had enough");
        check_error(begin(*transport, call_number(2), 30s).error(), Code::revoked, 3,
                    "rank 3 has had enough");
    });
}

template <Kind kind> void failures_at_once_leave_one() {
    for (int round = 0; round < 20; round++)
        run_ranks(kind, 4, [](const Rank &rank) {
            const auto transport = create(rank);
            rank.meeting.barrier();
            transport->fail(Error::make(Code::revoked, "by rank %u", rank.rank).at_rank(rank.rank));
            const auto failure = transport->failure();
            CHECK(failure.has_value());
            rank.meeting.board[rank.rank] = static_cast<uint64_t>(failure->rank);
            rank.meeting.barrier();
            for (uint32_t peer = 0; peer < 4; peer++)
                CHECK_EQ(rank.meeting.board[peer].load(), static_cast<uint64_t>(failure->rank));
            CHECK_EQ(std::string(failure->text), "by rank " + std::to_string(failure->rank));
        });
}

template <Kind kind> void a_rank_that_never_comes_is_named_by_the_timeout() {
    // Ranks of other hosts are asked which call they are in, and their answers take time.
    const auto timeout = is_one_host(kind) ? 200ms : 1000ms;
    const std::string sentence = "rank 1 did not come to all_reduce, call 1, within " +
                                 std::string(is_one_host(kind) ? "0.2 s" : "1 s");
    // A rank of another host that has not begun a call has not reported anything.
    const std::string state =
        is_one_host(kind) ? "; rank 1 is in no call before the first" : "rank 1 ";
    for (const Way way : {Way::mailbox, Way::eager, Way::ring, Way::meeting})
        run_ranks(kind, 3, [&](const Rank &rank) {
            const auto transport = create(rank);
            const auto start = Clock::now();
            if (rank.rank != 1) {
                check_late(run(*transport, call_number(1), way, timeout).error(), 1, sentence,
                           state);
                // The rank that came first has waited; the others may get the error at once.
                if (Clock::now() - start >= timeout) rank.meeting.board[0] = 1;
                CHECK(Clock::now() - start < timeout + 2s);
            }
            rank.meeting.barrier();
            CHECK_EQ(rank.meeting.board[0].load(), 1U);
            check_late(begin(*transport, call_number(1), timeout).error(), 1, sentence, state);
        });
}

// A rank may be as many calls ahead as descriptors are kept, because a descriptor stays in its
// place until all ranks have begun its call.
template <Kind kind> void no_rank_runs_further_ahead_than_its_calls_are_kept() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            for (uint64_t call = 2; call <= calls_kept_on_host; call++)
                CHECK_OK(begin(*transport, call_number(call), 200ms));
            check_late(begin(*transport, call_number(calls_kept_on_host + 1), 200ms).error(), 1,
                       "rank 1 did not come to all_reduce, call 64, within 0.2 s",
                       "rank 0 waits in call 64 (all_reduce) for rank 1; rank 1 ");
        }
        rank.meeting.barrier();
    });
}

// Between two calls the rank makes no pause in which another thread would look for it.
template <Kind kind> void a_rank_that_never_waits_hears_of_a_failure() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::meeting));
        CHECK_OK(begin(*transport, call_number(2), 30s));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            transport->fail(Error::make(Code::revoked, "rank 1 gives up").at_rank(1));
        } else {
            Done begun;
            for (uint64_t call = 3; begun && call < calls_kept_on_host; call++) {
                std::this_thread::sleep_for(2ms);
                begun = begin(*transport, call_number(call), 30s);
            }
            CHECK(!begun);
            check_error(begun.error(), Code::revoked, 1, "rank 1 gives up");
        }
        rank.meeting.barrier();
    });
}

template <Kind kind> void a_message_that_points_outside_is_refused() {
    for (const bool by_offset : {false, true})
        run_ranks(kind, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(begin(*transport, call_number(1), 30s));
            const auto outbox = transport->outbox();
            if (rank.rank == 0) {
                const MessageView wild =
                    by_offset ? MessageView{outbox.data() + outbox.size() + 1, 0, 0, 0}
                              : MessageView{outbox.data() + 8, outbox.size() - 7, 0, 0};
                CHECK_OK(send(*transport, 1, wild));
            } else {
                const auto view = receive(*transport, 0);
                CHECK(!view);
                check_error(view.error(), Code::damaged_data, Error::no_rank,
                            "a message points outside every outbox");
            }
            rank.meeting.barrier();
        });
}

// Returns options that count the warnings of all ranks and keep the first.
TransportOptions counting_warnings(const Rank &rank, Clock::duration warn_after) {
    TransportOptions options = rank.options;
    options.warn_after = warn_after;
    options.warn = [&meeting = rank.meeting](const char *sentence) {
        if (meeting.board[0]++ == 0)
            std::snprintf(meeting.note, sizeof meeting.note, "%s", sentence);
    };
    return options;
}

// Rank 3 delays a call that it has begun, or has not begun. In a ring each rank waits for its
// neighbour, and the warning must name rank 3 at the end of the chain, not the neighbour.
template <Kind kind> void a_late_rank_costs_one_warning() {
    // If ranks of other hosts are asked first, a quarter of the patience must be enough for their
    // answers on a busy machine.
    constexpr auto patience = is_one_host(kind) ? 200ms : 1000ms;
    for (const bool begins : {false, true})
        run_ranks(kind, 4, [&](const Rank &plain) {
            Rank rank = plain;
            rank.options = counting_warnings(rank, patience);
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::ring));
            CHECK_OK(rank.rank == 3 && !begins ? Done() : begin(*transport, call_number(2), 30s));
            rank.meeting.barrier();
            if (rank.rank == 3) std::this_thread::sleep_for(patience + 400ms);
            if (rank.rank == 3 && !begins) CHECK_OK(begin(*transport, call_number(2), 30s));
            CHECK_OK(by_ring(*transport));
            CHECK_OK(run(*transport, call_number(3), Way::ring));
            rank.meeting.barrier();
            CHECK_EQ(rank.meeting.board[0].load(), 1U);
            // A rank that sleeps does not tell other hosts that it has begun the call.
            const bool is_known = begins && is_one_host(kind);
            const std::string what = is_known ? "does not go on in" : "has not come to";
            const std::string said = rank.meeting.note;
            CHECK_EQ(said.substr(0, 12), std::string("rank 3 (pid "));
            CHECK(said.substr(said.find(") ") + 2)
                      .starts_with(what + " all_reduce, call 2, for " +
                                   (is_one_host(kind) ? "0.2 s: " : "1 s: ")));
        });
}

// Rank 2 computes in its call. No message has been sent to it before, so the network cannot deliver
// anything to it until it makes progress. The other ranks must end the call nevertheless.
template <Kind kind> void a_call_ends_before_all_have_heard_of_a_warning() {
    run_ranks(kind, 3, [](const Rank &plain) {
        Rank rank = plain;
        rank.options = counting_warnings(rank, 50ms);
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0) {
            transport->release(*receive(*transport, 1));
            CHECK_OK(transport->end());
            CHECK_EQ(rank.meeting.board[0].load(), 1U);
            rank.meeting.board[1] = 1;
        } else if (rank.rank == 1) {
            std::this_thread::sleep_for(300ms);
            CHECK_OK(send(*transport, 0, *free_view(*transport)));
            CHECK_OK(transport->end());
        }
        await([&] { return rank.meeting.board[1] == 1; });
        rank.meeting.barrier();
    });
}

template <Kind kind> void every_late_call_has_its_warning() {
    run_ranks(kind, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options = counting_warnings(rank, 50ms);
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 2; call++) {
            if (rank.rank == 1) std::this_thread::sleep_for(300ms);
            CHECK_OK(run(*transport, call_number(call), Way::mailbox));
            rank.meeting.barrier();
        }
        CHECK_EQ(rank.meeting.board[0].load(), 2U);
    });
}

// Rank 0 waits for rank 1, which waits for rank 2. The error would name rank 2, but rank 1 has been
// stopped and no longer checks its peers, so the error names rank 1.
void a_stopped_rank_answers_for_itself() {
    const Shared<Meeting> meeting(3U);
    const auto body = [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 2500ms));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            const auto start = Clock::now();
            while (Clock::now() - start < 100ms) CHECK_OK(transport->wait(2));
            rank.meeting.board[1] = 1;
            raise(SIGSTOP);
        } else if (rank.rank == 0) {
            await([&] { return rank.meeting.board[1] == 1; });
            Done waited;
            while (waited) waited = transport->wait(1);
            rank.meeting.board[2] = 1;
            CHECK(waited.error().code == Code::timeout);
            CHECK_EQ(waited.error().rank, 1);
        }
        rank.meeting.barrier();
    };
    const auto watch = [&](const std::vector<pid_t> &pids) {
        await([&] { return meeting->board[2] == 1; });
        kill(pids[1], SIGCONT);
    };
    run_ranks(*meeting, Kind::shm, body, small_options(), watch);
}

void a_stopped_rank_costs_one_warning() {
    const Shared<Meeting> meeting(4U);
    const auto body = [](const Rank &plain) {
        Rank rank = plain;
        rank.options = counting_warnings(rank, 1s);
        const auto transport = create(rank);
        for (uint64_t call = 1; call <= 300; call++) {
            CHECK_OK(begin(*transport, call_number(call), 30s));
            if (rank.rank == 1 && call == 150) {
                rank.meeting.board[1] = 1;
                raise(SIGSTOP);
            }
            CHECK_OK(call % 2 ? by_ring(*transport) : by_eager(*transport));
        }
        rank.meeting.barrier();
        CHECK_EQ(rank.meeting.board[0].load(), 1U);
        CHECK_EQ(std::string(rank.meeting.note).substr(0, 12), std::string("rank 1 (pid "));
    };
    const auto watch = [&](const std::vector<pid_t> &pids) {
        await([&] { return meeting->board[1] == 1; });
        std::this_thread::sleep_for(2s);
        kill(pids[1], SIGCONT);
    };
    run_ranks(*meeting, Kind::shm, body, small_options(), watch);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(who_has_left_is_named_by_those_who_wait),
        ON_BOTH(what_a_rank_gave_before_it_left_arrives),
        ON_BOTH(what_came_at_the_last_moment_is_seen),
        ON_ALL(a_failure_from_any_thread_stops_every_rank),
        ON_BOTH(failures_at_once_leave_one),
        ON_ALL(a_rank_that_never_comes_is_named_by_the_timeout),
        ON_BOTH(no_rank_runs_further_ahead_than_its_calls_are_kept),
        ON_ALL(a_rank_that_never_waits_hears_of_a_failure),
        ON_BOTH(a_message_that_points_outside_is_refused),
        ON_ALL(a_late_rank_costs_one_warning),
        ON_APART(a_call_ends_before_all_have_heard_of_a_warning),
        ON_ALL(every_late_call_has_its_warning),
        QTEST(a_stopped_rank_answers_for_itself),
        QTEST(a_stopped_rank_costs_one_warning),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
