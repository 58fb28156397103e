// Tests lib/transport: whatever the ranks disagree about, every rank returns the same error, which
// names the lowest rank that differs and both values.
#include "transport_ways.hpp"

using namespace qccl;
using namespace qtest;

namespace {

struct Disagreement {
    std::function<void(CallDescriptor &)> apply;
    const char *sentence;
    int64_t expected, got;
};

const std::vector<Disagreement> &disagreements() {
    static const std::vector<Disagreement> all{
        {[](CallDescriptor &d) { d.collective = Collective::barrier; },
         "rank 2 calls barrier, rank 0 calls all_reduce, in call 4", 0, 4},
        {[](CallDescriptor &d) { d.count = 1001; },
         "rank 2 calls all_reduce with count 1001, rank 0 with count 1000, in call 4", 1000, 1001},
        {[](CallDescriptor &d) { d.type = DataType::float64; },
         "rank 2 calls all_reduce with type double, rank 0 with type float, in call 4", 7, 8},
        {[](CallDescriptor &d) { d.op = RedOp::max; },
         "rank 2 calls all_reduce with op max, rank 0 with op sum, in call 4", 0, 2},
        {[](CallDescriptor &d) { std::strcpy(d.codec, "int4"); },
         "rank 2 calls all_reduce with codec int4, rank 0 with codec none, in call 4", 0, 0},
        {[](CallDescriptor &d) { std::memcpy(d.algorithm, "ring\0\0", 6); },
         "rank 2 calls all_reduce with algorithm ring, rank 0 with algorithm direct, in call 4", 0,
         0},
        {[](CallDescriptor &d) { d.root = 3; },
         "rank 2 calls all_reduce with other counts than rank 0, in call 4", 0, 0},
        {[](CallDescriptor &d) { d.captured = 7; },
         "rank 2 makes captured call 7, rank 0 a call of no graph, in call 4", 0, 7},
    };
    return all;
}

// The differing rank may also exchange its data in another way, as with another algorithm.
template <Kind kind> void every_disagreement_reaches_every_rank() {
    for (const Disagreement &disagreement : disagreements())
        for (const auto &[way, other_way] : {std::pair{Way::mailbox, Way::mailbox},
                                             {Way::eager, Way::eager},
                                             {Way::eager, Way::mailbox},
                                             {Way::mailbox, Way::eager},
                                             {Way::meeting, Way::meeting},
                                             {Way::meeting, Way::eager},
                                             {Way::eager, Way::meeting}})
            run_ranks(kind, 4, [&, way = way, other_way = other_way](const Rank &rank) {
                const auto transport = create(rank);
                for (uint64_t call = 1; call <= 3; call++)
                    CHECK_OK(run(*transport, call_number(call), way));
                CallDescriptor call = call_number(4);
                if (rank.rank == 2) disagreement.apply(call);
                const Done done = run(*transport, call, rank.rank == 2 ? other_way : way);
                CHECK(!done);
                check_error(done.error(), Code::mismatch, 2, disagreement.sentence);
                CHECK_EQ(done.error().expected, disagreement.expected);
                CHECK_EQ(done.error().got, disagreement.got);
                CHECK_EQ(std::string(transport->failure()->text),
                         std::string(disagreement.sentence));
                const Done next = run(*transport, call_number(5), way);
                check_error(next.error(), Code::mismatch, 2, disagreement.sentence);
            });
}

// Ranks 1 and 3 differ; the error names rank 1 although it comes last.
template <Kind kind> void the_lowest_that_differs_is_named() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        if (rank.rank == 1) std::this_thread::sleep_for(100ms);
        CallDescriptor call = call_number(1);
        if (rank.rank == 1) call.count = 7;
        if (rank.rank == 3) call.count = 8;
        const Done done = run(*transport, call, Way::mailbox);
        check_error(done.error(), Code::mismatch, 1,
                    "rank 1 calls all_reduce with count 7, rank 0 with count 1000, in call 1");
    });
}

// Rank 0 asks rank 1 about call 1, and rank 1 answers when it has begun call 2. The answer says
// nothing about call 2.
template <Kind kind> void news_of_one_call_are_none_of_the_next() {
    run_ranks(kind, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.warn_after = 40ms;
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 0)
            for (const auto start = Clock::now(); Clock::now() - start < 100ms;)
                CHECK_OK(transport->wait(1));
        rank.meeting.barrier();
        CallDescriptor call = call_number(2);
        call.count += rank.rank;
        if (rank.rank == 1) {
            CHECK_OK(begin(*transport, call, 30s));
            rank.meeting.barrier();
        } else {
            rank.meeting.barrier();
            for (const auto start = Clock::now(); Clock::now() - start < 50ms;)
                CHECK_OK(transport->wait(1));
            CHECK_OK(begin(*transport, call, 30s));
        }
        if (rank.rank == 1) std::this_thread::sleep_for(150ms);
        check_error(transport->await_all().error(), Code::mismatch, 1,
                    "rank 1 calls all_reduce with count 1001, rank 0 with count 1000, in call 2");
    });
}

// A root that only sends returns before any rank can report the mismatch.
template <Kind kind> void a_root_that_has_returned_hears_of_it_in_its_next_call() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CallDescriptor call = call_number(1);
        call.collective = Collective::broadcast;
        if (rank.rank == 0) call.count = 999;
        CHECK_OK(begin(*transport, call, 30s));
        rank.meeting.barrier();
        const std::string sentence =
            "rank 1 calls broadcast with count 1000, rank 0 with count 999, in call 1";
        if (rank.rank == 0) {
            const MessageView view{transport->outbox().data(), 8, 0, 0};
            for (uint32_t peer = 1; peer < 3; peer++) CHECK_OK(send(*transport, peer, view));
            (void)transport->end(); // may fail: the error may be here already
            rank.meeting.barrier();
        } else {
            check_error(receive(*transport, 0).error(), Code::mismatch, 1, sentence);
            rank.meeting.barrier();
        }
        check_error(run(*transport, call_number(2), Way::mailbox).error(), Code::mismatch, 1,
                    sentence);
    });
}

// Each rank takes the other for the root: both wait, and no message can reveal the difference.
template <Kind kind> void two_that_wait_for_each_other_find_out() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CallDescriptor call = call_number(1);
        call.collective = Collective::broadcast;
        call.root = 1 - rank.rank;
        CHECK_OK(begin(*transport, call, 30s));
        const auto start = Clock::now();
        check_error(receive(*transport, 1 - rank.rank).error(), Code::mismatch, 1,
                    "rank 1 calls broadcast with root 0, rank 0 with root 1, in call 1");
        CHECK(Clock::now() - start < 5s);
    });
}

// Each of two ranks takes itself for the root: both send, neither waits, and the next call finds
// the difference.
template <Kind kind> void two_roots_are_found_in_the_next_call() {
    for (const bool is_eager : {false, true})
        run_ranks(kind, 2, [&](const Rank &rank) {
            const auto transport = create(rank);
            CallDescriptor call = call_number(1);
            call.collective = Collective::broadcast;
            call.root = rank.rank;
            CHECK_OK(begin(*transport, call, 30s));
            if (is_eager) {
                CHECK_OK(transport->eager_slot(8));
                transport->post_eager(8);
            } else {
                CHECK_OK(send(*transport, 1 - rank.rank,
                              MessageView{transport->outbox().data(), 8, rank.rank, 5}));
            }
            (void)transport->end(); // may fail: the error may be here already
            rank.meeting.barrier();
            check_error(run_until_failure(*transport, 2, is_eager ? Way::eager : Way::mailbox),
                        Code::mismatch, 1,
                        "rank 1 calls broadcast with root 1, rank 0 with root 0, in call 1");
        });
}

// The next operation, a call of any kind or the end of the communicator, reveals only that an
// earlier call differed. It finds the difference even after agreeing calls in which the ranks
// exchanged nothing.
template <Kind kind> void an_earlier_disagreement_is_found_by_whatever_comes_next() {
    const std::vector<std::function<Done(Transport &, uint64_t)>> nexts{
        [](Transport &transport, uint64_t call) {
            return run(transport, call_number(call), Way::mailbox);
        },
        [](Transport &transport, uint64_t call) {
            return run(transport, call_number(call), Way::eager);
        },
        [](Transport &transport, uint64_t call) {
            return run(transport, call_number(call), Way::meeting);
        },
        [](Transport &transport, uint64_t) { return transport.confirm_calls(30s); },
    };
    // Nearly as many as a rank may be ahead.
    constexpr uint64_t most_silent = (is_one_host(kind) ? calls_kept_on_host : most_calls_kept) - 4;
    for (const auto &next : nexts)
        for (const uint64_t silent_calls : {uint64_t{0}, uint64_t{1}, most_silent})
            run_ranks(kind, 3, [&](const Rank &rank) {
                const auto transport = create(rank);
                CHECK_OK(run(*transport, call_number(1), Way::mailbox));
                CallDescriptor call = call_number(2);
                call.collective = Collective::broadcast;
                call.root = rank.rank == 2 ? 2 : 0;
                CHECK_OK(begin(*transport, call, 30s));
                CHECK_OK(transport->end());
                for (uint64_t i = 0; i < silent_calls; i++) {
                    CHECK_OK(begin(*transport, call_number(3 + i), 30s));
                    CHECK_OK(transport->end());
                }
                rank.meeting.barrier();
                const Done done = next(*transport, 3 + silent_calls);
                check_error(done.error(), Code::mismatch, 2,
                            "rank 2 calls broadcast with root 2, rank 0 with root 0, in call 2");
            });
}

// If a rank fails before it announces its call to other hosts, its goodbye may be the first message
// that mentions this call or a later one. A goodbye does not say whether the call was the same.
template <Kind kind> void a_goodbye_does_not_stand_for_a_call() {
    run_ranks(kind, 2, [](const Rank &rank) {
        auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::meeting));
        if (rank.rank == 0) {
            CHECK_OK(begin(*transport, call_number(2), 30s));
            rank.meeting.barrier();
            await([&] { return rank.meeting.board[0] == 1; });
            const Done met = transport->await_all();
            check_error(met.error(), Code::revoked, 1, "rank 1 gives up");
        } else {
            rank.meeting.barrier();
            transport->fail(Error::make(Code::revoked, "rank 1 gives up").at_rank(1));
            for (uint64_t call = 2; call <= 3; call++)
                CHECK(!begin(*transport, call_number(call), 30s));
            transport.reset();
            rank.meeting.board[0] = 1;
        }
    });
}

// A root that is early waits until the others have come to its call.
template <Kind kind> void calls_are_confirmed_when_all_have_come() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(
            transport->confirm_calls(30s)); // before the first call there is nothing to compare
        if (rank.rank == 0) {
            CHECK_OK(begin(*transport, call_number(1), 30s));
            CHECK_OK(transport->end());
            check_late(transport->confirm_calls(20ms).error(), 1,
                       "rank 1 did not come to all_reduce, call 1, within 0.02 s", "");
        }
        rank.meeting.barrier();
    });
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        if (rank.rank == 2) await([&] { return rank.meeting.board[0] == 2; });
        CHECK_OK(begin(*transport, call_number(1), 30s));
        CHECK_OK(transport->end());
        rank.meeting.board[0]++;
        CHECK_OK(transport->confirm_calls(30s));
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(every_disagreement_reaches_every_rank),
        ON_ALL(the_lowest_that_differs_is_named),
        ON_ALL(news_of_one_call_are_none_of_the_next),
        ON_ALL(a_root_that_has_returned_hears_of_it_in_its_next_call),
        ON_ALL(two_that_wait_for_each_other_find_out),
        ON_ALL(two_roots_are_found_in_the_next_call),
        ON_ALL(an_earlier_disagreement_is_found_by_whatever_comes_next),
        ON_ALL(calls_are_confirmed_when_all_have_come),
        ON_APART(a_goodbye_does_not_stand_for_a_call),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
