// transport/council: some ranks exchange bytes beside the calls, and all that are left agree, also
// where the communicator has failed and whoever leads dies.
#include "council_kit.hpp"

#include <csignal>
#include <numeric>

using namespace qccl;
using namespace qtest;

namespace {

std::byte value_of(uint32_t rank, size_t at) {
    return static_cast<std::byte>(31 * rank + at + at / 251);
}

void exchange(Council &council, Circle &circle, uint32_t rank, size_t bytes) {
    std::vector<std::byte> mine(bytes), all(bytes * circle.members.size());
    for (size_t i = 0; i < bytes; i++) mine[i] = value_of(rank, i);
    CHECK_OK(council.all_gather(circle, mine.data(), all.data(), bytes));
    for (size_t place = 0; place < circle.members.size(); place++)
        for (size_t i = 0; i < bytes; i++)
            CHECK(all[place * bytes + i] == value_of(circle.members[place], i));
}

// Few bytes, none, and more than go at once, in the order that the circle has; beside others, and
// from one topic to the next.
template <Kind kind> void circles_exchange() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        Council &council = transport->council();
        const std::vector<uint32_t> three{2, 0, 3}, one{1};
        for (uint64_t topic = 1; topic <= 3; topic++) {
            Circle circle = circle_of(rank.rank == 1 ? one : three, topic);
            for (const size_t bytes : {7, 0, 1, 20000, 4096, 3}) {
                exchange(council, circle, rank.rank, bytes);
                CHECK_OK(council.check(circle));
            }
            rank.meeting.barrier();
        }
        CHECK_OK(run(*transport, call_number(1), Way::mail));
    });
}

// One agreement after the other, before and after the communicator has failed.
template <Kind kind> void all_agree() {
    run_ranks(kind, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        Council &council = transport->council();
        for (uint64_t number = 1; number <= 6; number++) {
            const auto found = roll_call(council, everyone(4), rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 15U);
            CHECK_EQ(council.agreements(), number);
            if (number == 3) transport->fail(Error::make(Code::revoked, "enough"));
        }
        rank.meeting.barrier(); // nobody shall be missed before
    });
}

// Whoever leads first goes between the agreements, one after the other.
template <Kind kind> void those_who_leave_are_left_out() {
    run_ranks(kind, 4, [](const Rank &rank) {
        auto transport = create(rank);
        for (uint32_t gone = 0; gone <= rank.rank; gone++) {
            const auto found = roll_call(transport->council(), everyone(4), rank.rank);
            CHECK_OK(found);
            // Who has just returned may not have gone yet.
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

// Rank 0 is killed in the middle of it, and a little later rank 1: what the others have agreed on
// is the same word by word. Over the board: what each agreement has come to, plus one.
template <Kind kind> void leaders_die() {
    for (uint32_t round = 0; round < 8; round++) {
        const Shared<Meeting> meeting(4U);
        const Shared<std::array<std::atomic<uint32_t>, agreements>> words;
        const auto body = [&](const Rank &rank) {
            const auto transport = create(rank);
            for (uint32_t number = 0; number < agreements; number++) {
                const auto found = roll_call(transport->council(), everyone(4), rank.rank);
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

// It hears why, and so do those who could not have seen it themselves.
template <Kind kind> void a_circle_hears_of_its_dead() {
    const Shared<Meeting> meeting(4U);
    run_ranks(*meeting, kind, [](const Rank &rank) {
        const auto transport = create(rank);
        Circle circle = circle_of({0, 1, 2, 3}, 1);
        exchange(transport->council(), circle, rank.rank, 8);
        rank.meeting.barrier(); // what it has given may die with it
        if (rank.rank == 2) raise(SIGKILL);
        uint64_t mine = 0, all[4];
        const Done done = transport->council().all_gather(circle, &mine, all, sizeof mine);
        CHECK(!done);
        check_error(done.error(), Code::peer_lost, 2, done.error().text);
        CHECK(std::string(done.error().text).ends_with("died or left during the test's circle"));
        rank.meeting.board[0]++;
        await([&] { return rank.meeting.board[0] == 3; });
        // The next circle does without, and hears nothing of what was.
        Circle rest = circle_of({0, 1, 3}, 2);
        exchange(transport->council(), rest, rank.rank, 8);
        rank.meeting.board[1]++;
        await([&] { return rank.meeting.board[1] == 3; });
    });
}

thread_local std::function<void()> after_a_look; // at the network, of a rank

// Rank 1 gives what rank 0 waits for and leaves, which comes by a connection of its own, between
// two of rank 0's looks.
void what_was_given_before_leaving_counts() {
    static NetworkModule watched = memory_network::module;
    watched.progress = [](NetworkEnd *end) {
        const bool has_moved = memory_network::progress(end);
        if (after_a_look) after_a_look();
        return has_moved;
    };
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        Rank rank = plain;
        rank.options.far.network = &watched;
        auto transport = create(rank);
        std::atomic<uint64_t> &looks = rank.meeting.board[0], &gone = rank.meeting.board[1];
        Circle circle = circle_of({0, 1}, 1);
        if (rank.rank == 0) {
            after_a_look = [&] { // the first is part of giving
                if (++looks == 2) await([&] { return gone == 1; });
            };
            exchange(transport->council(), circle, 0, 8);
            after_a_look = nullptr;
        } else {
            await([&] { return looks == 2; });
            exchange(transport->council(), circle, 1, 8);
            transport.reset();
            gone = 1;
        }
    });
}

// Whoever gives up says so to those who would have waited longer, and to who comes later, though
// all have given what they had to; the next circle hears nothing of it.
template <Kind kind> void giving_up_is_heard() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        Council &council = transport->council();
        Circle circle = circle_of({0, 1, 2}, 1);
        if (rank.rank == 0) circle.timeout = 300ms;
        const auto give_up = [&] {
            uint64_t mine = 0, all[3];
            const Done done = council.all_gather(circle, &mine, all, sizeof mine);
            CHECK(!done);
            CHECK(done.error().code == Code::timeout);
            CHECK(std::string(done.error().text).ends_with("within 0.3 s"));
        };
        if (rank.rank != 2) give_up();
        rank.meeting.barrier();
        if (rank.rank == 2) give_up();
        rank.meeting.barrier();
        Circle next = circle_of({0, 1, 2}, 2);
        for (const size_t bytes : {8, 1, 100}) exchange(council, next, rank.rank, bytes);
        rank.meeting.barrier();
    });
}

template <Kind kind> void who_objects_says_so() {
    run_ranks(kind, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        Council &council = transport->council();
        const auto object = [&](const Council::Vote &vote) -> Done {
            if (number_in(vote.said) == (rank.rank == 1 ? 9 : 1)) return {};
            return Error::make(Code::mismatch, "rank %u says something else", vote.rank);
        };
        const auto decide = [](const auto &) { return word(5); };
        const auto refused =
            council.agree(everyone(3), word(rank.rank == 1 ? 9 : 1), object, decide);
        CHECK(!refused);
        CHECK(refused.error().code == Code::mismatch);
        rank.meeting.barrier();
        // It has not been reached, and can be tried again.
        const auto agreed = council.agree(everyone(3), word(1), nothing_against_it, decide);
        CHECK_OK(agreed);
        CHECK_EQ(number_in(*agreed), 5U);
        CHECK_EQ(council.agreements(), 1U);
        rank.meeting.barrier();
    });
}

// One warning, and then an error on each, which names the lowest that lives and does not come.
template <Kind kind> void who_does_not_come_is_named() {
    TransportOptions options = small_options();
    options.warn_after = 500ms; // far votes have come by then
    std::atomic<int> warnings{0};
    options.warn = [&](const char *sentence) {
        warnings++;
        CHECK(std::string(sentence).starts_with("rank 1 (pid "));
        CHECK(std::string(sentence).ends_with(") has not come to the test's circle for 0.5 s"));
    };
    run_ranks(
        kind, 4,
        [](const Rank &rank) {
            const auto transport = create(rank);
            if (rank.rank != 1) {
                Circle circle = everyone(4);
                circle.timeout = 1500ms;
                const auto late = roll_call(transport->council(), circle, rank.rank);
                CHECK(!late);
                check_error(late.error(), Code::timeout, 1,
                            "rank 1 did not come to the test's circle within 1.5 s");
            }
            rank.meeting.barrier();
            // Late is better than never.
            const auto found = roll_call(transport->council(), everyone(4), rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 15U);
            rank.meeting.barrier();
        },
        options);
    if (!are_processes(kind)) CHECK_EQ(warnings.load(), 1);
}

// Those who are cut off from each other go on by themselves, or not at all, and nobody waits.
void those_who_are_cut_off_go_on_apart() {
    run_ranks(Kind::inproc_pairs, 4, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mail));
        rank.meeting.barrier();
        if (rank.rank == 0) {
            const std::lock_guard guard(memory_network::living().mutex);
            for (const auto &[end, _] : memory_network::living().ends)
                for (uint32_t peer = 0; peer < 4; peer++)
                    if (end->peers[peer]) end->tell(NetworkEnd::Lost{peer});
        }
        rank.meeting.barrier();
        const auto found = roll_call(transport->council(), everyone(4), rank.rank);
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
        ON_ALL(circles_exchange),
        ON_ALL(all_agree),
        ON_ALL(those_who_leave_are_left_out),
        PROCESSES(leaders_die),
        PROCESSES(a_circle_hears_of_its_dead),
        QTEST(what_was_given_before_leaving_counts),
        ON_ALL(giving_up_is_heard),
        ON_ALL(who_objects_says_so),
        ON_ALL(who_does_not_come_is_named),
        QTEST(those_who_are_cut_off_go_on_apart),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
