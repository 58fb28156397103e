// Tests lib/fault/survivor_exchange: agreements in which some ranks make calls instead of voting,
// made different calls before, or know of a failure and do not come.
#include "survivor_exchange_kit.hpp"

using namespace qccl;
using namespace qtest;

namespace {

// A member makes a call of the communicator instead of voting, by messages, eager slots or a
// meeting. Both sides get the error at once, and may agree afterwards.
template <Kind kind> void a_call_against_an_agreement_is_a_mismatch() {
    for (const Way way : {Way::mailbox, Way::eager, Way::meeting})
        for (const uint32_t caller : {0U, 2U})
            run_ranks(kind, 3, [&](const Rank &rank) {
                const auto transport = create(rank);
                CHECK_OK(run(*transport, call_number(1), Way::mailbox));
                const auto start = Clock::now();
                const Done done = rank.rank == caller
                                      ? run(*transport, call_number(2), way)
                                      : outcome(roll_call(transport->survivor_exchange(),
                                                          everyone(3), rank.rank));
                if (caller == 0)
                    check_error(done.error(), Code::mismatch, 1,
                                "rank 1 calls comm_shrink, rank 0 calls all_reduce, in call 2");
                else
                    check_error(done.error(), Code::mismatch, 2,
                                "rank 2 calls all_reduce, rank 0 calls comm_shrink, in call 2");
                CHECK(Clock::now() - start < 5s);
                MemberGroup told = everyone(3);
                told.is_failure_known = true;
                const auto found = roll_call(transport->survivor_exchange(), told, rank.rank);
                CHECK_OK(found);
                CHECK_EQ(*found, 7U);
                rank.meeting.barrier();
            });
}

// Ranks that made different calls before must not agree as if they had not.
template <Kind kind> void an_earlier_disagreement_ends_an_agreement() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CallDescriptor call = call_number(1);
        call.collective = Collective::broadcast;
        call.root = rank.rank;
        CHECK_OK(begin(*transport, call, 30s));
        CHECK_OK(transport->end());
        // A rank that votes earlier would find the difference as soon as the other one has begun
        // its call.
        rank.meeting.barrier();
        const auto found = roll_call(transport->survivor_exchange(), everyone(2), rank.rank);
        check_error(found.error(), Code::mismatch, 1,
                    "rank 1 calls broadcast with root 1, rank 0 with root 0, in call 1");
        rank.meeting.barrier();
    });
}

// Another failure may come before any rank has compared the calls. The agreement then compares the
// calls that have ended.
template <Kind kind> void calls_that_ended_are_compared_after_any_failure() {
    for (const uint64_t later_calls : {0, 40})
        run_ranks(kind, 3, [&](const Rank &rank) {
            const auto transport = create(rank);
            CHECK_OK(run(*transport, call_number(1), Way::mailbox));
            for (uint64_t number = 2; number <= 2 + later_calls; number++) {
                CallDescriptor call = call_number(number);
                call.root = number == 2 && rank.rank == 2 ? 2 : 0;
                CHECK_OK(begin(*transport, call, 30s));
                CHECK_OK(transport->end());
            }
            rank.meeting.barrier();
            if (rank.rank == 0) transport->fail(Error::make(Code::revoked, "revoked").at_rank(0));
            await([&] { return transport->failure().has_value(); });
            // Calls that begin after the failure are not compared.
            CHECK(!begin(*transport, call_number(3 + later_calls + rank.rank), 30s));
            const auto found = roll_call(transport->survivor_exchange(), everyone(3), rank.rank);
            // Rank 2 names the rank whose vote came first.
            const bool is_second =
                rank.rank == 1 ||
                (rank.rank == 2 && std::string_view(found.error().text).starts_with("rank 1"));
            check_error(found.error(), Code::mismatch, 2,
                        std::string(is_second ? "rank 1" : "rank 0") +
                            " and rank 2 made different calls before the communicator failed, in "
                            "call 2");
            const auto again = roll_call(transport->survivor_exchange(), everyone(3), rank.rank);
            CHECK_OK(again);
            CHECK_EQ(*again, 7U);
            rank.meeting.barrier();
        });
}

// Covers every history of a slow rank, and a rank that is ahead by as much as is allowed.
void the_first_difference_is_found_in_what_both_tell() {
    const auto ended = [](uint64_t latest, uint64_t first_difference, uint64_t mark) {
        EndedCalls calls;
        for (calls.latest = 1; calls.latest <= latest; calls.latest++)
            calls.hashes[calls.latest % EndedCalls::kept] =
                calls.latest < first_difference ? calls.latest : calls.latest * 1000 + mark;
        calls.latest = latest;
        return calls;
    };
    for (const uint64_t latest : {1, 2, 256, 257, 258, 600})
        for (uint64_t ahead = 0; ahead <= most_calls_kept; ahead++) {
            const EndedCalls slow = ended(latest, ~uint64_t{0}, 0);
            CHECK(!EndedCalls::difference(slow, ended(latest + ahead, latest + 1, 1)));
            const uint64_t oldest =
                std::max<uint64_t>(latest + ahead, most_calls_kept) - most_calls_kept;
            for (uint64_t first = 1; first <= latest; first++) {
                const EndedCalls fast = ended(latest + ahead, first, 1);
                const auto expected = std::max({first, oldest, uint64_t{1}});
                CHECK_EQ(EndedCalls::difference(slow, fast).value_or(0), expected);
                CHECK_EQ(EndedCalls::difference(fast, slow).value_or(0), expected);
            }
        }
    CHECK(!EndedCalls::difference({}, ended(3, 1, 1)));
}

// Rank 1 has not been told that calls differed. Rank 0 has, and does not agree without rank 1, but
// waits until rank 1 votes again, whichever of the two came first.
template <Kind kind> void all_are_told_before_any_agrees() {
    for (const uint32_t late : {0U, 1U})
        run_ranks(kind, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            SurvivorExchange &survivors = transport->survivor_exchange();
            if (rank.rank == 0)
                transport->fail(Error::make(Code::mismatch, "different calls").at_rank(1));
            await([&] { return transport->failure().has_value(); });
            rank.meeting.barrier();
            MemberGroup group = everyone(2);
            if (rank.rank == late) await([&] { return rank.meeting.board[0] != 0; });
            if (late == 1 && rank.rank == 0) rank.meeting.board[0] = 1;
            if (rank.rank == 1)
                check_error(roll_call(survivors, group, 1).error(), Code::mismatch, 1,
                            "different calls");
            if (late == 0 && rank.rank == 1) rank.meeting.board[0] = 1;
            group.is_failure_known = true;
            const auto found = roll_call(survivors, group, rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 3U);
            rank.meeting.barrier();
        });
}

// A rank that ignores the failure and makes other calls is awaited only for peer_timeout.
template <Kind kind> void a_rank_that_goes_on_is_not_awaited_for_long() {
    run_ranks(kind, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.peer_timeout = 100ms;
        const auto transport = create(rank);
        transport->fail(Error::make(Code::revoked, "enough"));
        if (rank.rank == 1) transport->ignore_failure();
        const auto start = Clock::now();
        if (rank.rank == 0) {
            const auto found = roll_call(transport->survivor_exchange(), everyone(2), 0);
            check_error(found.error(), Code::timeout, 1,
                        "rank 1 did not come to the test's group within 0.1 s");
            CHECK(Clock::now() - start < 10s);
        }
        rank.meeting.barrier();
        const auto found = roll_call(transport->survivor_exchange(), everyone(2), rank.rank);
        CHECK_OK(found);
        rank.meeting.barrier();
    });
}

// If a rank has died, the other ranks may have made different calls before they agree.
template <Kind kind> void a_rank_that_is_gone_excuses_different_calls() {
    run_ranks(kind, 3, [](const Rank &rank) {
        auto transport = create(rank);
        if (rank.rank == 2) {
            transport.reset();
            rank.meeting.board[0] = 1;
        }
        await([&] { return rank.meeting.board[0] != 0; });
        if (rank.rank == 0) CHECK(!run(*transport, call_number(1), Way::meeting));
        if (transport) {
            const auto found = roll_call(transport->survivor_exchange(), everyone(3), rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 3U);
        }
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(a_call_against_an_agreement_is_a_mismatch),
        ON_ALL(an_earlier_disagreement_ends_an_agreement),
        ON_ALL(calls_that_ended_are_compared_after_any_failure),
        QTEST(the_first_difference_is_found_in_what_both_tell),
        ON_ALL(all_are_told_before_any_agrees),
        ON_ALL(a_rank_that_goes_on_is_not_awaited_for_long),
        ON_ALL(a_rank_that_is_gone_excuses_different_calls),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
