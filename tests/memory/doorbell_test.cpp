// Tests lib/memory/doorbell: no ring is lost, neither if both sides execute fences nor if the
// sleeper pays for both.
#include "tests/transport/transport_ranks.hpp"

#include "memory/peer_table.hpp"

using namespace qccl;
using namespace qtest;

namespace {

void ring_sleeper(Bell &bell, Fences fences) {
    if (is_sleeper(bell, fences)) ring(bell);
}

// Two threads pass a number back and forth, and each sleeps whenever it has to wait. A lost ring
// would cost a sleep of one second.
void nobody_sleeps_through_a_ring() {
    const bool may_fence = register_fences();
    for (const Fences fences : {Fences::both, Fences::by_sleeper}) {
        if (fences == Fences::by_sleeper && !may_fence) continue;
        Bell bells[2];
        std::atomic<uint64_t> given[2] = {};
        constexpr uint64_t rounds = 3000;
        const auto start = Clock::now();
        const auto play = [&](int side) {
            Waiter sleeper(bells[side], fences);
            for (uint64_t round = 1; round <= rounds; round++) {
                given[side].store(round, std::memory_order_release);
                ring_sleeper(bells[1 - side], fences);
                while (given[1 - side].load(std::memory_order_acquire) < round) {
                    if (sleeper.is_prepared())
                        sleeper.sleep(1s);
                    else
                        sleeper.prepare();
                }
                if (sleeper.is_prepared()) sleeper.cancel();
            }
        };
        std::thread other(play, 1);
        play(0);
        other.join();
        CHECK(Clock::now() - start < 2s);
    }
}

void a_ring_before_the_sleep_keeps_awake() {
    Bell bell;
    Waiter sleeper(bell, Fences::both);
    sleeper.prepare();
    ring_sleeper(bell, Fences::both);
    const auto start = Clock::now();
    sleeper.sleep(2s);
    CHECK(Clock::now() - start < 1s);
    sleeper.sleep(20ms); // the first sleep has consumed that ring
    CHECK(Clock::now() - start >= 20ms);
    sleeper.cancel();
    const uint32_t rings = bell.rings;
    ring_sleeper(bell, Fences::both);
    CHECK_EQ(bell.rings.load(), rings);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(nobody_sleeps_through_a_ring),
        QTEST(a_ring_before_the_sleep_keeps_awake),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
