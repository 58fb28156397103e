// Tests SpinBudget of lib/engine/run/gpu_fast_path: GPUs that meet in barriers wait long, GPUs that
// never meet hardly wait, and these soon find out when they meet again.
#include "tests/kit/qtest.hpp"

#include "engine/run/gpu_fast_path.hpp"

using qccl::SpinBudget;

static void those_that_meet_wait_long() {
    SpinBudget patience;
    for (int call = 0; call < 1000; call++) {
        CHECK_EQ(patience.looks(), SpinBudget::most_looks);
        patience.learn(call % 3 == 0); // often enough
    }
}

static void those_that_never_meet_hardly_wait() {
    SpinBudget patience;
    uint64_t looks = 0;
    for (int call = 0; call < 1000; call++) {
        looks += patience.looks();
        patience.learn(false);
    }
    CHECK(looks < 25 * SpinBudget::most_looks);
    CHECK(looks >= 1000);
}

static void a_meeting_is_found_again() {
    SpinBudget patience;
    for (int call = 0; call < 1000; call++) patience.learn(false);
    int calls = 0;
    for (; patience.looks() < SpinBudget::most_looks; calls++) patience.learn(false);
    CHECK(calls <= 64);
    patience.learn(true);
    those_that_meet_wait_long();
    CHECK_EQ(patience.looks(), SpinBudget::most_looks);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(those_that_meet_wait_long),
        QTEST(those_that_never_meet_hardly_wait),
        QTEST(a_meeting_is_found_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
