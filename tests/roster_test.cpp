// transport/roster: who may spin follows from who may run where; who does not fit is refused alike
// by all.
#include "transport_ranks.hpp"

#include "transport/roster.hpp"

using namespace qccl;
using namespace qtest;

namespace {

using Answers = std::vector<bool>; // by rank

struct Room {
    Answers spins;
    double ranks_per_core = 0;
};

// Gathers ranks whose threads may run on the given cores, and says what room they find there. By
// rank, its host, and its machine; empty: there is one.
Room find_room(const std::vector<std::vector<int>> &cores, const std::vector<uint32_t> &hosts = {},
               const std::vector<uint64_t> &machines = {}) {
    const auto size = static_cast<uint32_t>(cores.size());
    Room room;
    std::vector<std::atomic<int>> answers(size);
    std::vector<std::atomic<double>> crowds(size);
    run_ranks(Kind::inproc, size, [&](const Rank &rank) {
        cpu_set_t own;
        CPU_ZERO(&own);
        for (const int core : cores[rank.rank]) CPU_SET(core, &own);
        CHECK_EQ(sched_setaffinity(0, sizeof own, &own), 0);
        Introduction introduction;
        introduction.shape = {size, 1, 64, 4096};
        if (!machines.empty()) introduction.machine = machines[rank.rank];
        const auto roster = Roster::gather(
            introduction,
            [&](const void *mine, void *all, size_t bytes) {
                return rank.meeting.all_gather(rank.rank, mine, all, bytes);
            },
            hosts);
        CHECK_OK(roster);
        answers[rank.rank] = roster->may_spin(rank.rank);
        crowds[rank.rank] = roster->ranks_per_core();
    });
    for (uint32_t rank = 0; rank < size; rank++) {
        room.spins.push_back(answers[rank] != 0);
        CHECK_EQ(crowds[rank].load(), crowds[0].load());
    }
    room.ranks_per_core = crowds[0];
    return room;
}

Answers who_spins(const std::vector<std::vector<int>> &cores) { return find_room(cores).spins; }

bool may_use_cores_0_and_1() {
    cpu_set_t own;
    CHECK_EQ(sched_getaffinity(0, sizeof own, &own), 0);
    return CPU_ISSET(0, &own) && CPU_ISSET(1, &own);
}

void ranks_spin_where_nobody_needs_the_core() {
    if (!may_use_cores_0_and_1()) return;
    CHECK(who_spins({{0}, {1}}) == (Answers{true, true}));
    CHECK(who_spins({{0}, {0}}) == (Answers{false, false}));
    CHECK(who_spins({{0, 1}, {0, 1}}) == (Answers{true, true}));
    CHECK(who_spins({{0, 1}, {0, 1}, {0, 1}}) == (Answers{false, false, false}));
    // The one that is bound shares its core; the other can go elsewhere.
    CHECK(who_spins({{0}, {0, 1}}) == (Answers{false, true}));
}

void the_most_crowded_cores_count() {
    if (!may_use_cores_0_and_1()) return;
    CHECK_EQ(find_room({{0}}).ranks_per_core, 1.0);
    CHECK_EQ(find_room({{0, 1}}).ranks_per_core, 1.0);
    CHECK_EQ(find_room({{0, 1}, {0, 1}, {0, 1}}).ranks_per_core, 1.5);
    CHECK_EQ(find_room({{0}, {1}, {1}}).ranks_per_core, 2.0);
}

void hosts_of_one_machine_share_its_cores() {
    if (!may_use_cores_0_and_1()) return;
    const Room containers = find_room({{0}, {0}, {1}}, {0, 1, 2});
    CHECK(containers.spins == (Answers{false, false, true}));
    CHECK_EQ(containers.ranks_per_core, 2.0);
    const Room mixed = find_room({{0}, {0}, {0}}, {0, 1, 2}, {1, 1, 2});
    CHECK(mixed.spins == (Answers{false, false, true}));
    CHECK_EQ(mixed.ranks_per_core, 2.0);
    const Room machines = find_room({{0}, {0}, {0}}, {0, 1, 2}, {1, 2, 3});
    CHECK(machines.spins == (Answers{true, true, true}));
    CHECK_EQ(machines.ranks_per_core, 1.0);
}

// What both of two ranks say where rank 1 is another than it should be.
Error refuse(const std::function<void(Introduction &)> &change) {
    std::vector<Error> errors(2);
    run_ranks(Kind::inproc, 2, [&](const Rank &rank) {
        Introduction introduction;
        introduction.shape = {2, 1, 64, 4096};
        if (rank.rank == 1) change(introduction);
        const auto roster =
            Roster::gather(introduction, [&](const void *mine, void *all, size_t bytes) {
                return rank.meeting.all_gather(rank.rank, mine, all, bytes);
            });
        CHECK(!roster);
        CHECK_EQ(roster.error().rank, 1);
        CHECK(roster.error().code == Code::mismatch);
        errors[rank.rank] = roster.error();
    });
    CHECK_EQ(std::string(errors[0].text), std::string(errors[1].text));
    return errors[0];
}

void another_version_is_refused() {
    (void)refuse([](Introduction &introduction) { introduction.magic++; });
}

void another_user_is_refused() {
    const Error error = refuse([](Introduction &introduction) { introduction.user += 7; });
    CHECK_EQ(error.got, error.expected + 7);
    const std::string said =
        "rank 1 runs as user " + std::to_string(error.got) + ", rank 0 as user ";
    CHECK(std::string_view(error.text).starts_with(said));
}

// Each of them would have found room for its own segment.
void memory_has_to_suffice_for_all() {
    constexpr uint32_t size = 3;
    const SegmentShape shape{size, 1, 64, 4096};
    const auto bytes = shape.segment_bytes();
    CHECK_OK(bytes);
    for (const uint64_t free : {*bytes * 3, *bytes * 3 - 1}) {
        run_ranks(Kind::inproc, size, [&](const Rank &rank) {
            Introduction introduction;
            introduction.shape = shape;
            // The others have looked before somebody else took some.
            introduction.free_bytes = rank.rank == 1 ? free : free + *bytes;
            const auto roster =
                Roster::gather(introduction, [&](const void *mine, void *all, size_t each) {
                    return rank.meeting.all_gather(rank.rank, mine, all, each);
                });
            if (free >= *bytes * 3) {
                CHECK_OK(roster);
                return;
            }
            CHECK(!roster);
            CHECK(roster.error().code == Code::system_error);
            CHECK_EQ(roster.error().rank, Error::no_rank);
            CHECK_EQ(std::string(roster.error().text),
                     std::string("cannot get 0.1 MiB of shared memory for each of 3 ranks: only "
                                 "0.2 MiB are free"));
        });
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(ranks_spin_where_nobody_needs_the_core),
        QTEST(the_most_crowded_cores_count),
        QTEST(hosts_of_one_machine_share_its_cores),
        QTEST(another_version_is_refused),
        QTEST(another_user_is_refused),
        QTEST(memory_has_to_suffice_for_all),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
