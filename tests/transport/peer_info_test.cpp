// Tests lib/transport/peer_info: the cores that ranks may run on decide which ranks may spin, and
// all ranks refuse a rank that does not fit, with the same error. A rank that has lost another one
// returns the cause.
#include "transport_ranks.hpp"

#include "transport/peer_info.hpp"

using namespace qccl;
using namespace qtest;

namespace {

using Answers = std::vector<bool>; // by rank

struct CoreRoom {
    Answers spins;
    double ranks_per_core = 0;
};

// Gathers the PeerInfo of ranks whose threads are bound to the given cores; returns which ranks may
// spin, and how crowded the cores are. `hosts` and `machines` are by rank; empty: all ranks share
// one.
CoreRoom find_room(const std::vector<std::vector<int>> &cores,
                   const std::vector<uint32_t> &hosts = {},
                   const std::vector<uint64_t> &machines = {}) {
    const auto size = static_cast<uint32_t>(cores.size());
    CoreRoom room;
    std::vector<std::atomic<int>> answers(size);
    std::vector<std::atomic<double>> crowds(size);
    run_ranks(Kind::inproc, size, [&](const Rank &rank) {
        cpu_set_t own;
        CPU_ZERO(&own);
        for (const int core : cores[rank.rank]) CPU_SET(core, &own);
        CHECK_EQ(sched_setaffinity(0, sizeof own, &own), 0);
        PeerInfo info;
        info.shape = {size, 1, 64, 4096};
        if (!machines.empty()) info.machine = machines[rank.rank];
        const auto peer_info = PeerInfoTable::gather(
            info,
            [&](const void *mine, void *all, size_t bytes) {
                return rank.meeting.all_gather(rank.rank, mine, all, bytes);
            },
            hosts);
        CHECK_OK(peer_info);
        answers[rank.rank] = peer_info->may_spin(rank.rank);
        crowds[rank.rank] = peer_info->ranks_per_core();
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
    // Rank 0 is bound to a core that rank 1 may use; rank 1 can move to the other core.
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
    const CoreRoom containers = find_room({{0}, {0}, {1}}, {0, 1, 2});
    CHECK(containers.spins == (Answers{false, false, true}));
    CHECK_EQ(containers.ranks_per_core, 2.0);
    const CoreRoom mixed = find_room({{0}, {0}, {0}}, {0, 1, 2}, {1, 1, 2});
    CHECK(mixed.spins == (Answers{false, false, true}));
    CHECK_EQ(mixed.ranks_per_core, 2.0);
    const CoreRoom machines = find_room({{0}, {0}, {0}}, {0, 1, 2}, {1, 2, 3});
    CHECK(machines.spins == (Answers{true, true, true}));
    CHECK_EQ(machines.ranks_per_core, 1.0);
}

// Returns the error that two ranks both get if `change` alters rank 1's properties.
Error refuse(const std::function<void(PeerInfo &)> &change) {
    std::vector<Error> errors(2);
    run_ranks(Kind::inproc, 2, [&](const Rank &rank) {
        PeerInfo info;
        info.shape = {2, 1, 64, 4096};
        if (rank.rank == 1) change(info);
        const auto peer_info =
            PeerInfoTable::gather(info, [&](const void *mine, void *all, size_t bytes) {
                return rank.meeting.all_gather(rank.rank, mine, all, bytes);
            });
        CHECK(!peer_info);
        CHECK_EQ(peer_info.error().rank, 1);
        CHECK(peer_info.error().code == Code::mismatch);
        errors[rank.rank] = peer_info.error();
    });
    CHECK_EQ(std::string(errors[0].text), std::string(errors[1].text));
    return errors[0];
}

void another_version_is_refused() {
    (void)refuse([](PeerInfo &info) { info.magic++; });
}

void another_user_is_refused() {
    const Error error = refuse([](PeerInfo &info) { info.user += 7; });
    CHECK_EQ(error.got, error.expected + 7);
    const std::string said =
        "rank 1 runs as user " + std::to_string(error.got) + ", rank 0 as user ";
    CHECK(std::string_view(error.text).starts_with(said));
}

// Each rank alone would find enough memory for its own segment.
void memory_has_to_suffice_for_all() {
    constexpr uint32_t size = 3;
    const SegmentShape shape{size, 1, 64, 4096};
    const auto bytes = shape.segment_bytes();
    CHECK_OK(bytes);
    for (const uint64_t free : {*bytes * 3, *bytes * 3 - 1}) {
        run_ranks(Kind::inproc, size, [&](const Rank &rank) {
            PeerInfo info;
            info.shape = shape;
            // Ranks 0 and 2 have measured before another process took some memory.
            info.free_bytes = rank.rank == 1 ? free : free + *bytes;
            const auto peer_info =
                PeerInfoTable::gather(info, [&](const void *mine, void *all, size_t each) {
                    return rank.meeting.all_gather(rank.rank, mine, all, each);
                });
            if (free >= *bytes * 3) {
                CHECK_OK(peer_info);
                return;
            }
            CHECK(!peer_info);
            CHECK(peer_info.error().code == Code::system_error);
            CHECK_EQ(peer_info.error().rank, Error::no_rank);
            CHECK_EQ(std::string(peer_info.error().text),
                     std::string("cannot get 0.1 MiB of shared memory for each of 3 ranks: only "
                                 "0.4 MiB are free"));
        });
    }
}

// A rank whose partner has left learns why from the others.
void the_cause_of_a_loss_is_returned() {
    const AllGather fails = [](const void *, void *, size_t) -> Done {
        return Error::make(Code::peer_lost, "rank 2 died").at_rank(2);
    };
    const auto said = [&](const Error &own) {
        return std::string(gather_done(own, 3, fails).error().text);
    };
    const Error left = Error::make(Code::peer_lost, "rank 0 left").at_rank(0);
    CHECK_EQ(said(left), "rank 2 died");
    CHECK_EQ(said(Error::make(Code::peer_lost, "rank 2 left").at_rank(2)), "rank 2 left");
    CHECK_EQ(said(Error::make(Code::peer_lost, "one left")), "one left");
    CHECK_EQ(said(Error::make(Code::system_error, "no more files").at_rank(0)), "no more files");
    CHECK_EQ(std::string(gather_done({}, 3, fails).error().text), "rank 2 died");
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
        QTEST(the_cause_of_a_loss_is_returned),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
