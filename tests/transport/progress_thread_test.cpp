// Tests ProgressThread of lib/transport/remote_endpoint: a rank that computes between two calls
// still answers ranks of other hosts.
#include "transport_ways.hpp"

using namespace qccl;
using namespace qtest;

namespace {

// Rank 1 needs no other rank in call 2 and ends it soon, which rank 0 does not see. Rank 2 does not
// come.
template <Kind kind> void who_is_done_is_not_blamed_for_who_is_late() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 1) {
            CHECK_OK(begin(*transport, call_number(2), 30s));
            CHECK_OK(transport->end());
        }
        rank.meeting.barrier();
        if (rank.rank == 0) {
            CHECK_OK(begin(*transport, call_number(2), 2s));
            check_late(receive(*transport, 2).error(), 2,
                       "rank 2 did not come to all_reduce, call 2, within 2 s",
                       "rank 1 was last heard of after call 2");
            rank.meeting.board[0] = 1;
        }
        await([&] {
            std::this_thread::sleep_for(1ms); // computes
            return rank.meeting.board[0] == 1;
        });
        rank.meeting.barrier();
    });
}

thread_local bool is_own_thread = false; // the thread is a rank's
std::atomic<uint32_t> looks_of_others{0};

// A call that has failed is over, so the progress thread must take care of what is still on its
// way.
void whose_call_has_failed_is_in_none() {
    static NetworkModule watched = memory_network::module;
    watched.progress = [](NetworkEnd *end) {
        if (!is_own_thread) looks_of_others++;
        return memory_network::progress(end);
    };
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        is_own_thread = true;
        Rank rank = plain;
        rank.options.remote.network = &watched;
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 50ms));
        Done done = transport->wait(1 - rank.rank);
        while (done) done = transport->wait(1 - rank.rank);
        CHECK(done.error().code == Code::timeout);
        rank.meeting.barrier();
        const uint32_t before = looks_of_others;
        const auto start = Clock::now();
        while (looks_of_others < before + 3 && Clock::now() - start < 5s)
            std::this_thread::sleep_for(1ms); // computes
        CHECK(looks_of_others >= before + 3);
        rank.meeting.barrier();
    });
}

// The progress thread of rank 0 runs out of memory while rank 0 computes: rank 1, which waits for
// rank 0 in a call, learns of it at once.
void what_goes_wrong_beside_the_rank_fails_the_communicator() {
    static std::atomic<const NetworkEnd *> failing{nullptr};
    static NetworkModule watched = memory_network::module;
    watched.progress = [](NetworkEnd *end) {
        if (!is_own_thread && failing.load() == end) throw std::bad_alloc();
        return memory_network::progress(end);
    };
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        is_own_thread = true;
        Rank rank = plain;
        rank.options.remote.network = &watched;
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &[end, _] : memory_network::living().ends)
                if (!end->peers[0]) failing = end;
        } else {
            CHECK_OK(begin(*transport, call_number(2), 10s));
            Done done;
            while (done) done = transport->wait(0);
            CHECK(std::string(done.error().text).find("memory") != std::string::npos);
        }
        rank.meeting.barrier();
        failing = nullptr;
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_APART(who_is_done_is_not_blamed_for_who_is_late),
        QTEST(whose_call_has_failed_is_in_none),
        QTEST(what_goes_wrong_beside_the_rank_fails_the_communicator),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
