// Tests lib/fault/survivor_exchange: groups of ranks exchange bytes beside the calls, and all
// surviving ranks agree, even if the communicator has failed or the leader dies.
#include "survivor_exchange_kit.hpp"

#include <csignal>
#include <numeric>

using namespace qccl;
using namespace qtest;

namespace {

std::byte value_of(uint32_t rank, size_t at) {
    return static_cast<std::byte>(31 * rank + at + at / 251);
}

void exchange(SurvivorExchange &survivors, MemberGroup &group, uint32_t rank, size_t bytes) {
    std::vector<std::byte> mine(bytes), all(bytes * group.members.size());
    for (size_t i = 0; i < bytes; i++) mine[i] = value_of(rank, i);
    CHECK_OK(survivors.all_gather(group, mine.data(), all.data(), bytes));
    for (size_t place = 0; place < group.members.size(); place++)
        for (size_t i = 0; i < bytes; i++)
            CHECK(all[place * bytes + i] == value_of(group.members[place], i));
}

// Exchanges few bytes, none, and more than go at once, in the order of the group's members; beside
// another group, and from one topic to the next.
template <Kind kind> void groups_exchange() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        const std::vector<uint32_t> three{2, 0, 3}, one{1};
        for (uint64_t topic = 1; topic <= 3; topic++) {
            MemberGroup group = group_of(rank.rank == 1 ? one : three, topic);
            for (const size_t bytes : {7, 0, 1, 20000, 4096, 3}) {
                exchange(survivors, group, rank.rank, bytes);
                CHECK_OK(survivors.check(group));
            }
            rank.meeting.barrier();
        }
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
    });
}

// Ranks 0 and 1 meet as a pair when all ranks have given their shares and rank 2 has not read them.
template <Kind kind> void a_pair_does_not_wait_for_readers() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        auto &has_given = rank.meeting.board[0], &are_done = rank.meeting.board[1];
        MemberGroup all = everyone(3), pair = group_of({0, 1}, 7);
        all.timeout = 5s;
        pair.is_apart = true;
        if (rank.rank == 2) {
            // The others have not come, so rank 2 waits, and looks again when they are done.
            all.cancel_check = [&]() -> Done {
                has_given = 1;
                await([&] { return are_done == 2; });
                return {};
            };
            exchange(survivors, all, rank.rank, 7);
        } else {
            await([&] { return has_given == 1; });
            exchange(survivors, all, rank.rank, 7);
            for (int round = 0; round < 2; round++) exchange(survivors, pair, rank.rank, 5);
            are_done++;
        }
        rank.meeting.barrier();
    });
}

// One agreement after the other, before and after the communicator has failed.
template <Kind kind> void all_agree() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        for (uint64_t number = 1; number <= 6; number++) {
            const auto found = roll_call(survivors, everyone(4), rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 15U);
            CHECK_EQ(survivors.agreements(), number);
            if (number == 3) transport->fail(Error::make(Code::revoked, "enough"));
        }
        rank.meeting.barrier(); // no rank may leave before the others are done
    });
}

// After each agreement the leading rank leaves, one rank after the other.
template <Kind kind> void those_who_leave_are_left_out() {
    run_ranks(kind, 4, [](const Rank &rank) {
        auto transport = create(rank);
        for (uint32_t gone = 0; gone <= rank.rank; gone++) {
            const auto found = roll_call(transport->survivor_exchange(), everyone(4), rank.rank);
            CHECK_OK(found);
            // A rank that has just returned may not have left yet.
            const uint32_t there = 15U >> rank.rank << rank.rank, before = (1U << gone) - 1;
            CHECK_EQ(*found & there, there);
            CHECK_EQ(*found & before, 0U);
            rank.meeting.board[gone]++;
            if (gone == rank.rank) break;
            await([&] { return rank.meeting.board[32] > gone; });
        }
        transport.reset();
        rank.meeting.board[32]++;
    });
}

constexpr uint32_t agreements = 5000; // more than they need

// Rank 0 is killed in the middle of the agreements, and a little later rank 1. The survivors'
// decisions are the same word for word. `words` has the decision of each agreement; 0: none yet.
template <Kind kind> void leaders_die() {
    for (uint32_t round = 0; round < 8; round++) {
        const Shared<Meeting> meeting(4U);
        const Shared<std::array<std::atomic<uint32_t>, agreements>> words;
        const auto body = [&](const Rank &rank) {
            const auto transport = create(rank);
            for (uint32_t number = 0; number < agreements; number++) {
                const auto found =
                    roll_call(transport->survivor_exchange(), everyone(4), rank.rank);
                CHECK_OK(found);
                uint32_t nobody = 0;
                (*words)[number].compare_exchange_strong(nobody, *found);
                CHECK_EQ((*words)[number].load(), *found);
                if (rank.rank == 3) rank.meeting.board[0] = number;
                if (*found == 12) break;
            }
            rank.meeting.board[1]++;
            await([&] { return rank.meeting.board[1] == 2; });
        };
        const auto watch = [&](const std::vector<pid_t> &pids) {
            for (const uint32_t victim : {0U, 1U}) {
                const uint64_t begin = meeting->board[0];
                await([&] { return meeting->board[0] > begin + 3 * round; });
                std::this_thread::sleep_for(std::chrono::microseconds(37 * round));
                kill(pids[victim], SIGKILL);
            }
        };
        const auto statuses = run_ranks(*meeting, kind, body, small_options(), watch);
        CHECK_EQ(WIFSIGNALED(statuses[0]) + WIFSIGNALED(statuses[1]), 2);
        CHECK_EQ((*words)[meeting->board[0]].load(), 12U);
    }
}

// The group's call names the dead rank, also on ranks that could not have seen the death
// themselves.
template <Kind kind> void a_group_hears_of_its_dead() {
    const Shared<Meeting> meeting(4U);
    run_ranks(*meeting, kind, [](const Rank &rank) {
        const auto transport = create(rank);
        MemberGroup group = group_of({0, 1, 2, 3}, 1);
        exchange(transport->survivor_exchange(), group, rank.rank, 8);
        rank.meeting.barrier(); // what rank 2 has sent may die with it
        if (rank.rank == 2) raise(SIGKILL);
        uint64_t mine = 0, all[4];
        const Done done = transport->survivor_exchange().all_gather(group, &mine, all, sizeof mine);
        CHECK(!done);
        check_error(done.error(), Code::peer_lost, 2, done.error().text);
        CHECK(std::string(done.error().text).ends_with("died or left during the test's group"));
        rank.meeting.board[0]++;
        await([&] { return rank.meeting.board[0] == 3; });
        // The next group goes without the dead rank and hears nothing of the death.
        MemberGroup rest = group_of({0, 1, 3}, 2);
        exchange(transport->survivor_exchange(), rest, rank.rank, 8);
        rank.meeting.board[1]++;
        await([&] { return rank.meeting.board[1] == 3; });
    });
}

thread_local std::function<void()> after_a_look; // called after each progress() of a rank's network

// Rank 1 sends what rank 0 waits for and leaves. The leaving arrives by a connection of its own,
// between two of rank 0's looks at the network.
void what_was_given_before_leaving_counts() {
    static NetworkModule watched = memory_network::module;
    watched.progress = [](NetworkEnd *end) {
        const bool has_moved = memory_network::progress(end);
        if (after_a_look) after_a_look();
        return has_moved;
    };
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.remote.network = &watched;
        auto transport = create(rank);
        std::atomic<uint64_t> &looks = rank.meeting.board[0], &gone = rank.meeting.board[1];
        MemberGroup group = group_of({0, 1}, 1);
        if (rank.rank == 0) {
            after_a_look = [&] { // the first look is part of sending
                if (++looks == 2) await([&] { return gone == 1; });
            };
            exchange(transport->survivor_exchange(), group, 0, 8);
            after_a_look = nullptr;
        } else {
            await([&] { return looks == 2; });
            exchange(transport->survivor_exchange(), group, 1, 8);
            transport.reset();
            gone = 1;
        }
    });
}

// A rank that gives up says so to ranks that would have waited longer, and to ranks that come
// later, although all have sent what they had to. The next group hears nothing of it.
template <Kind kind> void giving_up_is_heard() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        MemberGroup group = group_of({0, 1, 2}, 1);
        if (rank.rank == 0) group.timeout = 300ms;
        const auto give_up = [&] {
            uint64_t mine = 0, all[3];
            const Done done = survivors.all_gather(group, &mine, all, sizeof mine);
            CHECK(!done);
            CHECK(done.error().code == Code::timeout);
            CHECK(std::string(done.error().text).ends_with("within 0.3 s"));
        };
        if (rank.rank != 2) give_up();
        rank.meeting.barrier();
        if (rank.rank == 2) give_up();
        rank.meeting.barrier();
        MemberGroup next = group_of({0, 1, 2}, 2);
        for (const size_t bytes : {8, 1, 100}) exchange(survivors, next, rank.rank, bytes);
        rank.meeting.barrier();
    });
}

// A rank that gives up the next group before it begins leaves what it gave to this group, to which
// rank 1 does not look before.
template <Kind kind> void giving_up_the_next_group_takes_nothing_back() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        MemberGroup group = group_of({0, 1}, 1);
        if (rank.rank == 1)
            group.cancel_check = [&rank]() -> Done {
                rank.meeting.board[0] = 1;
                await([&] { return rank.meeting.board[1] == 1; });
                return {};
            };
        if (rank.rank == 0) await([&] { return rank.meeting.board[0] == 1; });
        exchange(survivors, group, rank.rank, 8);
        if (rank.rank == 0) {
            survivors.abandon(group_of({0, 1}, 2), Error::make(Code::remote_error, "given up"));
            rank.meeting.board[1] = 1;
        }
        MemberGroup next = group_of({0, 1}, 2);
        if (rank.rank == 1) {
            const Done done = survivors.check(next);
            CHECK(!done);
            check_error(done.error(), Code::remote_error, Error::no_rank, "given up");
        }
        rank.meeting.barrier();
    });
}

template <Kind kind> void who_objects_says_so() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        const auto validate = [&](const SurvivorExchange::Proposal &vote) -> Done {
            if (number_in(vote.payload) == (rank.rank == 1 ? 9 : 1)) return {};
            return Error::make(Code::mismatch, "rank %u says something else", vote.rank);
        };
        const auto decide = [](const auto &) { return word(5); };
        const auto refused =
            survivors.agree(everyone(3), word(rank.rank == 1 ? 9 : 1), validate, decide);
        CHECK(!refused);
        CHECK(refused.error().code == Code::mismatch);
        rank.meeting.barrier();
        // No agreement has been reached, and the ranks can try again.
        const auto agreed = survivors.agree(everyone(3), word(1), nothing_against_it, decide);
        CHECK_OK(agreed);
        CHECK_EQ(number_in(*agreed), 5U);
        CHECK_EQ(survivors.agreements(), 1U);
        rank.meeting.barrier();
    });
}

// The missing rank causes one warning, and then an error on each rank that names the lowest rank
// that lives and does not come.
template <Kind kind> void who_does_not_come_is_named() {
    TransportOptions options = small_options();
    options.warn_after = 500ms; // votes of remote ranks have come by then
    std::atomic<int> warnings{0};
    options.warn = [&](const char *sentence) {
        warnings++;
        CHECK(std::string(sentence).starts_with("rank 1 (pid "));
        CHECK(std::string(sentence).ends_with(") has not come to the test's group for 0.5 s"));
    };
    run_ranks(
        kind, 4,
        [](const Rank &rank) {
            const auto transport = create(rank);
            if (rank.rank != 1) {
                MemberGroup group = everyone(4);
                group.timeout = 1500ms;
                const auto late = roll_call(transport->survivor_exchange(), group, rank.rank);
                CHECK(!late);
                check_error(late.error(), Code::timeout, 1,
                            "rank 1 did not come to the test's group within 1.5 s");
            }
            rank.meeting.barrier();
            // The missing rank comes late, and the next agreement includes it.
            const auto found = roll_call(transport->survivor_exchange(), everyone(4), rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 15U);
            rank.meeting.barrier();
        },
        options);
    if (!are_processes(kind)) CHECK_EQ(warnings.load(), 1);
}

// Ranks that are cut off from each other go on by themselves, or not at all; no rank waits.
void those_who_are_cut_off_go_on_apart() {
    run_ranks(Kind::inproc_pairs, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &[end, _] : memory_network::living().ends)
                for (uint32_t peer = 0; peer < 4; peer++)
                    if (end->peers[peer]) end->tell(NetworkEnd::Lost{peer});
        }
        rank.meeting.barrier();
        const auto found = roll_call(transport->survivor_exchange(), everyone(4), rank.rank);
        CHECK_OK(found);
        CHECK_EQ(*found, rank.rank < 2 ? 3U : 12U);
        rank.meeting.barrier();
    });
}

} // namespace

#ifdef QCCL_UCX_MODULE
#define PROCESSES(body)                                                                            \
    QTEST(body<Kind::shm>), QTEST(body<Kind::shm_apart>), QTEST(body<Kind::shm_pairs>)
#else
#define PROCESSES(body) QTEST(body<Kind::shm>)
#endif

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(groups_exchange),
        ON_ALL(a_pair_does_not_wait_for_readers),
        ON_ALL(all_agree),
        ON_ALL(those_who_leave_are_left_out),
        PROCESSES(leaders_die),
        PROCESSES(a_group_hears_of_its_dead),
        QTEST(what_was_given_before_leaving_counts),
        ON_ALL(giving_up_is_heard),
        ON_ALL(giving_up_the_next_group_takes_nothing_back),
        ON_ALL(who_objects_says_so),
        ON_ALL(who_does_not_come_is_named),
        QTEST(those_who_are_cut_off_go_on_apart),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
