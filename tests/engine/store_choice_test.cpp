// Tests lib/engine/run/store_choice: it finds the cheaper way to store, keeps it, and changes when
// the other way becomes cheaper.
#include "tests/kit/qtest.hpp"

#include "engine/run/pipeline_lane.hpp"

#include <cstdint>

using namespace qccl;

namespace {

// Returns how many of `tasks` tasks stream, if storing through the cache costs `through` and past
// it `past`. Every `interrupted`-th task costs a hundred times as much; 0: none.
uint32_t streamed(StoreChoice &choice, uint32_t tasks, double through, double past,
                  uint32_t interrupted = 0) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < tasks; i++) {
        const bool streams = choice.streams();
        count += streams;
        const bool is_interrupted = interrupted != 0 && i % interrupted == 0;
        choice.took((streams ? past : through) * (is_interrupted ? 100 : 1));
    }
    return count;
}

void finds_the_cheaper_way() {
    StoreChoice near, far;
    streamed(near, 200, 1, 2);
    streamed(far, 200, 5, 1);
    CHECK(!near.streams());
    CHECK(far.streams());
}

void follows_a_change() {
    StoreChoice choice;
    streamed(choice, 20000, 1, 2);
    CHECK(streamed(choice, 2000, 1, 2) < 100);
    // At the latest, the trial of the next cycle finds the change.
    streamed(choice, 4200, 5, 1);
    CHECK(streamed(choice, 2000, 5, 1) > 1900);
}

void trials_are_rare_in_the_long_run() {
    StoreChoice choice;
    streamed(choice, 20000, 1, 5);
    const uint32_t tasks = 100000, trials = streamed(choice, tasks, 1, 5);
    CHECK(trials > 0);
    CHECK(trials * 100 < tasks);
}

void interruptions_do_not_decide() {
    StoreChoice choice;
    streamed(choice, 20000, 1, 2, 3);
    CHECK(streamed(choice, 2000, 1, 2, 3) < 100);
}

void kinds_of_calls_choose_for_themselves() {
    StoreChoices choices;
    streamed(choices.of(1 << 20, true), 200, 1, 2);
    streamed(choices.of(1 << 20, false), 200, 2, 1);
    streamed(choices.of(1 << 26, true), 200, 2, 1);
    CHECK(!choices.of(1 << 20, true).streams());
    CHECK(choices.of(1 << 20, false).streams());
    CHECK(choices.of(1 << 26, true).streams());
    CHECK(&choices.of(0, true) != &choices.of(~uint64_t{0}, false));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(finds_the_cheaper_way),
        QTEST(follows_a_change),
        QTEST(trials_are_rare_in_the_long_run),
        QTEST(interruptions_do_not_decide),
        QTEST(kinds_of_calls_choose_for_themselves),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
