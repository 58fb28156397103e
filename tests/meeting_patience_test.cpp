// engine/meeting_patience: GPUs that meet wait long, those that never do hardly at all, and soon
// find out that they meet again.
#include "qtest.hpp"

#include "engine/meeting_patience.hpp"

using qccl::MeetingPatience;

static void those_that_meet_wait_long() {
    MeetingPatience patience;
    for (int call = 0; call < 1000; call++) {
        CHECK_EQ(patience.looks(), MeetingPatience::most_looks);
        patience.learn(call % 3 == 0); // often enough
    }
}

static void those_that_never_meet_hardly_wait() {
    MeetingPatience patience;
    uint64_t looks = 0;
    for (int call = 0; call < 1000; call++) {
        looks += patience.looks();
        patience.learn(false);
    }
    CHECK(looks < 25 * MeetingPatience::most_looks);
    CHECK(looks >= 1000);
}

static void a_meeting_is_found_again() {
    MeetingPatience patience;
    for (int call = 0; call < 1000; call++) patience.learn(false);
    int calls = 0;
    for (; patience.looks() < MeetingPatience::most_looks; calls++) patience.learn(false);
    CHECK(calls <= 64);
    patience.learn(true);
    those_that_meet_wait_long();
    CHECK_EQ(patience.looks(), MeetingPatience::most_looks);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(those_that_meet_wait_long),
        QTEST(those_that_never_meet_hardly_wait),
        QTEST(a_meeting_is_found_again),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
