// Tests lib/fault/failure_detector: waits are short while the peer runs, give the core away if
// another rank needs it, and end when a doorbell rings. Times are the best of several measurements,
// because other programs may use the machine.
#include "tests/transport/transport_ways.hpp"

#include <algorithm>

using namespace qccl;
using namespace qtest;

namespace {

// Whether at least half of the wake-ups came within 10 ms. Without doorbells, sleeps of 50 ms would
// hardly end so soon so often.
bool are_woken(std::vector<Clock::duration> late) {
    std::sort(late.begin(), late.end());
    return late[late.size() / 2] < 10ms;
}

// A rank that sleeps in a receive is woken by the message, long before its longest sleep would end.
template <Kind kind> void sleepers_are_woken() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        std::vector<Clock::duration> late;
        for (uint64_t turn = 0; turn < 10; turn++) {
            rank.meeting.barrier();
            CHECK_OK(begin(*transport, call_number(turn + 1), 30s));
            if (turn % 2 == rank.rank) {
                // Long enough for the peer's sleeps to have grown to their longest.
                std::this_thread::sleep_for(120ms);
                const auto view = free_view(*transport);
                CHECK_OK(view);
                rank.meeting.board[0] = now_ticks();
                CHECK_OK(send(*transport, 1 - rank.rank, *view));
                CHECK_OK(transport->end());
            } else {
                const auto view = receive(*transport, 1 - rank.rank);
                CHECK_OK(view);
                late.push_back(since_ticks(rank.meeting.board[0]));
                transport->release(*view);
            }
        }
        CHECK(are_woken(late));
    });
}

// A rank that sleeps because it has no free slot is woken when the peer releases the slot.
template <Kind kind> void who_waits_for_room_is_woken() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        std::vector<Clock::duration> late;
        CHECK_OK(begin(*transport, call_number(1), 30s));
        for (int turn = 0; turn < 10; turn++) {
            rank.meeting.barrier();
            if (rank.rank == 0) {
                CHECK_OK(send(*transport, 1, *free_view(*transport)));
                CHECK_OK(free_view(*transport));
                late.push_back(since_ticks(rank.meeting.board[0]));
            } else {
                const auto view = receive(*transport, 0);
                CHECK_OK(view);
                std::this_thread::sleep_for(120ms);
                rank.meeting.board[0] = now_ticks();
                transport->release(*view);
            }
        }
        CHECK(rank.rank == 1 || are_woken(late));
    });
}

// Makes many short runs of `calls` calls and returns the time per call of each run, ascending.
std::vector<Clock::duration> times(const Rank &rank, Transport &transport, uint64_t &call,
                                   uint64_t calls) {
    std::vector<Clock::duration> taken;
    for (int run_number = 0; run_number < 30; run_number++) {
        rank.meeting.barrier();
        const auto start = Clock::now();
        for (uint64_t i = 0; i < calls; i++)
            CHECK_OK(run(transport, call_number(++call), Way::eager));
        taken.push_back((Clock::now() - start) / calls);
    }
    std::sort(taken.begin(), taken.end());
    return taken;
}

// The time limit holds for a wait for a peer, which begins after the wait for the device.
template <Kind kind> void a_device_may_compute_longer_than_a_peer_may_stay_away() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        CHECK_OK(begin(*transport, call_number(1), 100ms));
        if (rank.rank == 0) {
            Wait device(0, WaitPhase::device);
            device.is_brief = true;
            const auto start = Clock::now();
            {
                const WaitScope waiting(*transport);
                while (Clock::now() - start < 300ms) CHECK_OK(transport->wait(device));
            }
            Done waited;
            while (waited) waited = transport->wait(1);
            check_error(waited.error(), Code::timeout, 1, waited.error().text);
            CHECK(Clock::now() - start >= 400ms);
        }
        rank.meeting.barrier();
    });
}

template <Kind kind> void ranks_may_outnumber_cores() {
    run_ranks(kind, 8, [](const Rank &rank) {
        const auto transport = create(rank);
        uint64_t call = 0;
        // Spinning would cost a time slice of the scheduler, which is milliseconds, in every call.
        CHECK(times(rank, *transport, call, 20).front() < 500us);
    });
}

// The scheduler may put both ranks on one core although each had a core of its own at creation. A
// rank that then spins for 20 us before it yields makes each call take twice that time.
template <Kind kind> void ranks_that_come_to_share_a_core_stop_spinning() {
    run_ranks(kind, 2, [](const Rank &rank) {
        const auto transport = create(rank);
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        const auto all_gather = [&](const cpu_set_t &mine, cpu_set_t *all) {
            return rank.meeting.all_gather(rank.rank, &mine, all, sizeof mine);
        };
        cpu_set_t both[2];
        CHECK_OK(all_gather(one, both));
        CHECK_EQ(sched_setaffinity(0, sizeof both[0], &both[0]), 0);
        uint64_t call = 0;
        CHECK(times(rank, *transport, call, 50).front() < 15us);
    });
}

void run_on_this_core() {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
}

// Makes the thread's core one that others need: gives it back soon, and takes it again.
class BriefNeighbour {
public:
    BriefNeighbour() : thread_([this] { take_turns(); }) {} // on the core of its maker
    ~BriefNeighbour() {
        ends_ = true;
        thread_.join();
    }

private:
    void take_turns() const {
        while (!ends_) {
            const auto start = Clock::now();
            while (Clock::now() - start < 5us) {}
            sched_yield();
        }
    }

    std::atomic<bool> ends_ = false;
    std::thread thread_;
};

std::chrono::nanoseconds used_by_this_thread() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// A spin time that the caller sets is kept even if it does harm, as it does on a core that another
// thread needs. What the rank spins is the time that it uses of the core.
template <Kind kind> void a_spin_that_is_asked_for_is_spun() {
    constexpr auto spin = 20ms;
    TransportOptions options = small_options();
    options.spin = spin;
    run_ranks(
        kind, 2,
        [&](const Rank &rank) {
            const auto transport = create(rank);
            std::optional<BriefNeighbour> neighbour;
            if (rank.rank == 0) {
                run_on_this_core();
                neighbour.emplace();
            }
            std::chrono::nanoseconds most{};
            for (uint64_t turn = 0; turn < 10; turn++) {
                rank.meeting.barrier();
                CHECK_OK(begin(*transport, call_number(turn + 1), 30s));
                if (rank.rank == 1) {
                    std::this_thread::sleep_for(2 * spin);
                    const auto view = free_view(*transport);
                    CHECK_OK(view);
                    CHECK_OK(send(*transport, 0, *view));
                    CHECK_OK(transport->end());
                    continue;
                }
                const auto before = used_by_this_thread();
                const auto view = receive(*transport, 1);
                CHECK_OK(view);
                // The first waits show the rank that its core is shared.
                if (turn > 1) most = std::max(most, used_by_this_thread() - before);
                transport->release(*view);
            }
            CHECK(rank.rank == 1 || most > spin / 5);
        },
        options);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        ON_ALL(sleepers_are_woken),
        ON_BOTH(who_waits_for_room_is_woken),
        ON_BOTH(a_device_may_compute_longer_than_a_peer_may_stay_away),
        ON_BOTH(ranks_may_outnumber_cores),
        ON_BOTH(ranks_that_come_to_share_a_core_stop_spinning),
        ON_BOTH(a_spin_that_is_asked_for_is_spun),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
