// transport/doorbell: nobody sleeps through a ring, whoever pays for the fence.
#include "transport_ranks.hpp"

#include "transport/doorbell.hpp"

using namespace qccl;
using namespace qtest;

namespace {

void ring_sleeper(Bell &bell, Fences fences) {
    if (is_sleeper(bell, fences)) ring(bell);
}

// Two threads hand a number to and fro, and each lies down as soon as it has to wait. A lost ring
// costs a nap of a second.
void nobody_sleeps_through_a_ring() {
    const bool may_fence = register_fences();
    for (const Fences fences : {Fences::both, Fences::by_sleeper}) {
        if (fences == Fences::by_sleeper && !may_fence) continue;
        Bell bells[2];
        std::atomic<uint64_t> given[2] = {};
        constexpr uint64_t rounds = 3000;
        const auto start = Clock::now();
        const auto play = [&](int side) {
            Sleeper sleeper(bells[side], fences);
            for (uint64_t round = 1; round <= rounds; round++) {
                given[side].store(round, std::memory_order_release);
                ring_sleeper(bells[1 - side], fences);
                while (given[1 - side].load(std::memory_order_acquire) < round) {
                    if (sleeper.is_lying())
                        sleeper.sleep(1s);
                    else
                        sleeper.lie_down();
                }
                if (sleeper.is_lying()) sleeper.get_up();
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
    Sleeper sleeper(bell, Fences::both);
    sleeper.lie_down();
    ring_sleeper(bell, Fences::both);
    const auto start = Clock::now();
    sleeper.sleep(2s);
    CHECK(Clock::now() - start < 1s);
    sleeper.sleep(20ms); // that ring has been heard
    CHECK(Clock::now() - start >= 20ms);
    sleeper.get_up();
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
