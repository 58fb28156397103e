// Tests lib/transport: every survivor names a process that dies at any moment, soon and in the same
// words, and what the process sent before it died still arrives.
#include "transport_ways.hpp"

#include <algorithm>
#include <csignal>
#include <random>

using namespace qccl;
using namespace qtest;

namespace {

// A survivor notices after one sleep at most; the rest is for a loaded machine.
constexpr auto soon = 3s;

// Indices on the board; `named` holds 1 + a rank.
enum Place { created, killed_at, named, noted };

void check_last_words(const Rank &rank, const Error &error) {
    Meeting &meeting = rank.meeting;
    CHECK(error.code == Code::peer_lost);
    CHECK(meeting.board[killed_at] != 0);
    CHECK(since_ticks(meeting.board[killed_at]) < soon);
    uint64_t nobody = 0;
    if (meeting.board[named].compare_exchange_strong(nobody,
                                                     static_cast<uint64_t>(error.rank) + 1)) {
        std::snprintf(meeting.note, sizeof meeting.note, "%s", error.text);
        meeting.board[noted] = 1;
    }
    await([&] { return meeting.board[noted] == 1; });
    CHECK_EQ(std::string(error.text), std::string(meeting.note));
    CHECK_EQ(static_cast<uint64_t>(error.rank) + 1, meeting.board[named].load());
}

// All ranks call until one call fails. The victims are killed some time after all ranks have been
// created.
void survive(uint32_t size, const std::vector<uint32_t> &victims, Clock::duration delay, Way way) {
    const Shared<Meeting> meeting(size);
    std::vector<pid_t> pids;
    const auto body = [&](const Rank &rank) {
        const auto transport = create(rank);
        rank.meeting.board[created]++;
        check_last_words(rank, run_until_failure(*transport, 1, way));
    };
    const auto watch = [&](const std::vector<pid_t> &all) {
        pids = all;
        await([&] { return meeting->board[created] == size; });
        std::this_thread::sleep_for(delay);
        meeting->board[killed_at] = now_ticks();
        // Victims are stopped first, so that no victim sees another one die.
        for (const int signal : {SIGSTOP, SIGKILL})
            for (const uint32_t victim : victims) kill(pids[victim], signal);
    };
    const auto statuses = run_ranks(*meeting, Kind::shm, body, small_options(), watch);
    for (uint32_t rank = 0; rank < size; rank++)
        CHECK_EQ(WIFSIGNALED(statuses[rank]),
                 std::find(victims.begin(), victims.end(), rank) != victims.end());
    const auto dead = static_cast<uint32_t>(meeting->board[named] - 1);
    CHECK(std::find(victims.begin(), victims.end(), dead) != victims.end());
    const std::string start =
        "rank " + std::to_string(dead) + " (pid " + std::to_string(pids[dead]) + ") died ";
    CHECK_EQ(std::string(meeting->note).substr(0, start.size()), start);
}

void a_killed_rank_is_named_by_every_survivor() {
    std::minstd_rand random(1);
    for (uint32_t round = 0; round < 36; round++) {
        const auto delay = std::chrono::microseconds(random() % 20000);
        survive(4, {round % 4}, delay,
                std::array{Way::mailbox, Way::eager, Way::ring, Way::meeting}[round % 4]);
    }
}

void of_two_that_die_one_is_named() {
    for (uint32_t round = 0; round < 6; round++)
        survive(4, {round % 4, (round + 1) % 4}, 5ms, Way::ring);
}

void the_last_survivor_is_told() { survive(3, {0, 1}, 5ms, Way::eager); }

// Rank 1 exits with status 0, but without leaving the communicator.
void a_silent_exit_is_a_death() {
    const Shared<Meeting> meeting(3U);
    run_ranks(*meeting, Kind::shm, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(run(*transport, call_number(1), Way::mailbox));
        if (rank.rank == 1) _exit(0);
        const Error error = run_until_failure(*transport, 2, Way::mailbox);
        check_error(error, Code::peer_lost, 1, error.text);
        CHECK(std::string(error.text).ends_with(") died before all_reduce, call 2"));
    });
}

void what_the_dead_gave_arrives() {
    const Shared<Meeting> meeting(3U);
    run_ranks(*meeting, Kind::shm, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 30s));
        if (rank.rank == 1) {
            std::memset(transport->outbox().data(), 42, 8);
            const MessageView view{transport->outbox().data(), 8, 1, 0};
            for (const uint32_t peer : {0U, 2U}) CHECK_OK(send(*transport, peer, view));
            CHECK_OK(transport->eager_slot(8));
            transport->post_eager(8);
            rank.meeting.board[created] = 1;
            raise(SIGKILL);
        }
        await([&] { return rank.meeting.board[created] == 1; });
        std::this_thread::sleep_for(50ms);
        const auto view = receive(*transport, 1);
        CHECK_OK(view);
        CHECK(view->data[7] == std::byte{42});
        transport->release(*view);
        CHECK_OK(transport->eager_slot(8));
        transport->post_eager(8);
        CHECK_OK(transport->await_eager(1));
        const Error error = run_until_failure(*transport, 2, Way::mailbox);
        CHECK(error.code == Code::peer_lost);
        CHECK_EQ(error.rank, 1);
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_killed_rank_is_named_by_every_survivor),
        QTEST(of_two_that_die_one_is_named),
        QTEST(the_last_survivor_is_told),
        QTEST(a_silent_exit_is_a_death),
        QTEST(what_the_dead_gave_arrives),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
