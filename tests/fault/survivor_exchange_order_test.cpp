// Tests lib/fault/survivor_exchange: agreements and exchanges in which messages come late or ranks
// give up, in an order that the test sets. The ranks wait for each other in functions that the
// exchange calls: at each step of a wait (`is_called_off`), before a decision, and after each look
// at the network.
#include "survivor_exchange_kit.hpp"

#include <deque>

using namespace qccl;
using namespace qtest;

namespace {

constexpr auto end_of_test = 5s; // bounds waits that a fault would make endless

// Returns a group whose waits call `at_step` at each step.
MemberGroup watched(uint32_t size, const std::function<void()> &at_step) {
    MemberGroup group = everyone(size);
    group.timeout = end_of_test;
    group.is_called_off = [at_step] {
        at_step();
        return false;
    };
    return group;
}

// Returns a group whose waits end at the first step after `is_over` holds.
MemberGroup given_up_when(uint32_t size, const std::function<bool()> &is_over) {
    MemberGroup group = everyone(size);
    group.is_called_off = is_over;
    return group;
}

// ---- Networks

thread_local std::function<void()> after_a_look; // called after each progress() of a rank's network

// Sends complete in a later look at the network, as on a real one: after this many looks.
constexpr int looks_to_send = 10;
thread_local int looks_since_post = 0;

NetworkModule watched_module() {
    NetworkModule module = memory_network::module;
    module.progress = [](NetworkEnd *end) {
        const bool has_moved = memory_network::progress(end);
        if (after_a_look) after_a_look();
        return has_moved;
    };
    return module;
}

NetworkModule slow_module() {
    NetworkModule module = memory_network::module;
    module.post = [](NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                     const NetworkPart *parts, size_t part_count, bool may_be_eager,
                     uint64_t token) {
        end->is_slow = true;
        looks_since_post = 0;
        return memory_network::post(end, peer, head, head_bytes, parts, part_count, may_be_eager,
                                    token);
    };
    module.progress = [](NetworkEnd *end) {
        const bool is_held = looks_since_post++ < looks_to_send;
        return is_held ? memory_network::progress_without_sent(end) : memory_network::progress(end);
    };
    return module;
}

// Puts a control character in the place of the first letter of an Error at the end of a record.
NetworkModule spoiling_module() {
    NetworkModule module = memory_network::module;
    module.post = [](NetworkEnd *end, uint32_t peer, const void *head, size_t head_bytes,
                     const NetworkPart *parts, size_t part_count, bool may_be_eager,
                     uint64_t token) {
        if (part_count == 0 || parts[0].bytes < sizeof(Error))
            return memory_network::post(end, peer, head, head_bytes, parts, part_count,
                                        may_be_eager, token);
        const auto *const first = static_cast<const std::byte *>(parts[0].data);
        std::vector<std::byte> bytes(first, first + parts[0].bytes);
        bytes[bytes.size() - sizeof(Error) + offsetof(Error, text)] = std::byte{'\x1b'};
        const NetworkPart part{bytes.data(), bytes.size()};
        return memory_network::post(end, peer, head, head_bytes, &part, 1, may_be_eager, token);
    };
    return module;
}

Rank on_network(Rank rank, const NetworkModule &module) {
    rank.options.remote.network = &module;
    return rank;
}

// An end that keeps the messages for another one until `release`.
class HeldMessages {
public:
    explicit HeldMessages(uint32_t ranks) {
        end_.peers.assign(ranks, &end_);
        const std::lock_guard guard(memory_network::living().mutex);
        memory_network::living().ends[&end_] = true;
    }
    ~HeldMessages() {
        const std::lock_guard guard(memory_network::living().mutex);
        memory_network::living().ends.erase(&end_);
    }
    NetworkEnd *end() { return &end_; }
    void release(NetworkEnd &to) {
        std::deque<NetworkEnd::News> news;
        {
            const std::lock_guard guard(end_.mutex);
            news.swap(end_.news);
        }
        for (NetworkEnd::News &each : news) to.tell(std::move(each));
    }

private:
    NetworkEnd end_;
};

// ---- Decisions

// Rank 0 decides and is lost. Its decision reaches only rank 2, and only after rank 2 has voted for
// rank 1 as the leader. Rank 1 may decide otherwise, so rank 2 must follow rank 1.
void a_lost_leaders_decision_counts_only_if_the_next_leader_has_it() {
    HeldMessages held(3);
    NetworkEnd nowhere;
    run_ranks(Kind::inproc_apart, 3, [&](const Rank &rank) {
        const auto transport = create(rank);
        std::atomic<uint64_t> &steps = rank.meeting.board[0], &is_decided = rank.meeting.board[1];
        const auto cut_rank_0_off = [&] {
            NetworkEnd &own = end_of(0);
            {
                const std::lock_guard guard(memory_network::living().mutex);
                own.peers[1] = &nowhere;
                own.peers[2] = held.end();
            }
            for (const uint32_t peer : {1U, 2U}) own.tell(NetworkEnd::Lost{peer});
        };
        const auto let_rank_2_hear_of_it = [&] {
            held.release(end_of(2));
            const uint64_t before = steps;
            await([&] { return is_decided != 0 || steps >= before + 2; });
        };
        const MemberGroup group = watched(3, [&] { steps += rank.rank == 2; });
        const auto found = roll_call(transport->survivor_exchange(), group, rank.rank, [&] {
            if (rank.rank == 0)
                cut_rank_0_off();
            else
                let_rank_2_hear_of_it();
        });
        CHECK_OK(found);
        if (rank.rank == 0)
            for (const uint32_t peer : {1U, 2U}) end_of(peer).tell(NetworkEnd::Lost{0});
        if (rank.rank == 2) is_decided = 1;
        CHECK_EQ(*found, rank.rank == 0 ? 7U : 6U);
        rank.meeting.barrier();
    });
}

// Rank 1 does not look at the network while the leader decides. The leader does not return before
// rank 1 has the decision: it might leave, and a network drops what it has not delivered.
void a_leader_stays_until_the_others_have_its_decision() {
    static const NetworkModule module = watched_module();
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        const Rank rank = on_network(plain, module);
        const auto transport = create(rank);
        std::atomic<uint64_t> &waits = rank.meeting.board[0], &looks = rank.meeting.board[1],
                              &has_returned = rank.meeting.board[2];
        bool is_early = false;
        const MemberGroup group = watched(2, [&] {
            if (rank.rank == 0 || waits++ != 0) return;
            await([&] { return looks >= 10 || has_returned != 0; });
            is_early = has_returned != 0;
        });
        const auto found = roll_call(transport->survivor_exchange(), group, rank.rank, [&] {
            await([&] { return waits != 0; });
            after_a_look = [&] { looks++; };
        });
        after_a_look = nullptr;
        if (rank.rank == 0) has_returned = 1;
        CHECK_OK(found);
        CHECK(!is_early);
        rank.meeting.barrier();
    });
}

// Only rank 1 can see that rank 2 is lost, and rank 0 takes its word for it.
void a_rank_that_is_lost_to_one_is_lost_to_all() {
    run_ranks(Kind::inproc_apart, 3, [](const Rank &rank) {
        const auto transport = create(rank);
        if (rank.rank == 1) end_of(1).tell(NetworkEnd::Lost{2});
        if (rank.rank != 2) {
            const MemberGroup group = watched(3, [] {});
            const auto found = roll_call(transport->survivor_exchange(), group, rank.rank);
            CHECK_OK(found);
            CHECK_EQ(*found, 3U);
        }
        rank.meeting.barrier();
    });
}

// ---- Attempts

// Rank 0 gives up, and begins again with a proposal that rank 1 rejects. Rank 1's vote is for the
// attempt that is over; the agreement waits for rank 1 to come again.
template <Kind kind> void a_rank_that_rejects_an_attempt_has_not_voted_in_it() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        std::atomic<uint64_t> &begun = rank.meeting.board[0], &steps = rank.meeting.board[1],
                              &is_decided = rank.meeting.board[2];
        const MemberGroup group = watched(2, [&] { steps += rank.rank == 0; });
        if (rank.rank == 0) {
            const MemberGroup first = given_up_when(2, [] { return true; });
            CHECK(!agree_on_sum(survivors, first, 1, nothing_against_it, {}));
            begun = 1;
        } else {
            await([&] { return begun != 0; });
            const auto rejects = [](const SurvivorExchange::Proposal &theirs) -> Done {
                if (number_in(theirs.payload) != 2) return {};
                return Error::make(Code::mismatch, "not with that");
            };
            const auto refused = agree_on_sum(survivors, group, 10, rejects, {});
            check_error(refused.error(), Code::mismatch, Error::no_rank, "not with that");
            const uint64_t before = steps;
            await([&] { return is_decided != 0 || steps >= before + 2; });
        }
        const uint32_t mine = rank.rank == 0 ? 2 : 20;
        const auto found =
            agree_on_sum(survivors, group, mine, nothing_against_it, [&] { is_decided = 1; });
        CHECK_OK(found);
        CHECK_EQ(*found, 22U);
        rank.meeting.barrier();
    });
}

// Rank 1 gives up while rank 0 decides, and comes again. In the next agreement both ranks are in
// the first attempt, so each finds that it cannot agree with the other.
template <Kind kind> void the_next_agreement_begins_with_the_first_attempt() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        std::atomic<uint64_t> &decides = rank.meeting.board[0], &is_back = rank.meeting.board[1];
        if (rank.rank == 1) {
            const MemberGroup first = given_up_when(2, [&] { return decides != 0; });
            CHECK(!roll_call(survivors, first, 1));
        }
        const MemberGroup group = watched(2, [&] {
            if (rank.rank == 1) is_back = 1;
        });
        const auto found = roll_call(survivors, group, rank.rank, [&] {
            decides = 1;
            await([&] { return is_back != 0; });
        });
        CHECK_OK(found);
        CHECK_EQ(*found, 3U);
        const auto refused =
            agree_on_sum(survivors, watched(2, [] {}), rank.rank,
                         [&](const SurvivorExchange::Proposal &theirs) -> Done {
                             if (number_in(theirs.payload) == rank.rank) return {};
                             return Error::make(Code::mismatch, "another proposal");
                         },
                         {});
        check_error(refused.error(), Code::mismatch, Error::no_rank, "another proposal");
        rank.meeting.barrier();
    });
}

// ---- Records

// Whatever an exchange or an agreement returns, this rank's last record has left by then: the
// caller may not look at the network for long. Rank 1 comes last, so it does not wait before it
// returns.
void what_a_rank_has_published_has_left_when_it_returns() {
    static const NetworkModule module = slow_module();
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        const Rank rank = on_network(plain, module);
        const auto transport = create(rank);
        SurvivorExchange &survivors = transport->survivor_exchange();
        std::atomic<uint64_t> &steps = rank.meeting.board[0];
        const auto check_sent = [&] {
            NetworkEnd &end = end_of(rank.rank);
            const std::lock_guard guard(end.mutex);
            CHECK(std::none_of(end.news.begin(), end.news.end(), [](const auto &each) {
                return std::holds_alternative<NetworkEnd::Sent>(each);
            }));
        };
        CHECK_OK(roll_call(survivors, everyone(2), rank.rank));
        check_sent();
        uint64_t mine = 0, all[2];
        MemberGroup group = watched(2, [&] { steps++; });
        group.topic = 1;
        if (rank.rank == 1) await([&] { return steps != 0; });
        CHECK_OK(survivors.all_gather(group, &mine, all, sizeof mine));
        check_sent();
        group.is_called_off = [] { return true; };
        if (rank.rank == 0) CHECK(!survivors.all_gather(group, &mine, all, sizeof mine));
        check_sent();
        rank.meeting.barrier();
    });
}

// The reason for which another rank has given up is shown to people, and its bytes may hold
// anything.
void a_reason_of_another_rank_is_printable() {
    static const NetworkModule module = spoiling_module();
    run_ranks(Kind::inproc_apart, 2, [](const Rank &plain) {
        const Rank rank = on_network(plain, module);
        const auto transport = create(rank);
        MemberGroup group = given_up_when(2, [&] { return rank.rank == 0; });
        group.topic = 1;
        uint64_t mine = 0, all[2];
        if (rank.rank == 1) rank.meeting.barrier(); // rank 0 gives up before rank 1 comes
        const Done done = transport->survivor_exchange().all_gather(group, &mine, all, sizeof mine);
        if (rank.rank == 0) rank.meeting.barrier();
        CHECK(!done);
        if (rank.rank == 1)
            check_error(done.error(), Code::revoked, 0,
                        "?he test's group: rank 0 has ended the communicator");
        rank.meeting.barrier();
    });
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_lost_leaders_decision_counts_only_if_the_next_leader_has_it),
        QTEST(a_leader_stays_until_the_others_have_its_decision),
        QTEST(a_rank_that_is_lost_to_one_is_lost_to_all),
        ON_BOTH(a_rank_that_rejects_an_attempt_has_not_voted_in_it),
        ON_BOTH(the_next_agreement_begins_with_the_first_attempt),
        QTEST(what_a_rank_has_published_has_left_when_it_returns),
        QTEST(a_reason_of_another_rank_is_printable),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
