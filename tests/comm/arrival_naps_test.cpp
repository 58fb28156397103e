// Tests ArrivalNaps of lib/comm/streams: the queue first polls without a pause, if it may spin, and
// then sleeps between polls for longer and longer, up to a bound.
#include "tests/kit/qtest.hpp"

#include "comm/streams.hpp"

using namespace qccl;
using namespace std::chrono_literals;

static void it_looks_without_a_pause_first() {
    ArrivalNaps naps(50us);
    CHECK(naps.next(0us) == 0us);
    CHECK(naps.next(49us) == 0us);
    CHECK(naps.next(50us) > 0us);
}

static void ranks_that_share_cores_leave_them_to_others() {
    ArrivalNaps naps(0us);
    CHECK(naps.next(0us) > 0us);
}

static void naps_grow_up_to_a_bound() {
    ArrivalNaps naps(0us);
    ArrivalNaps::Time before{};
    for (int i = 0; i < 20; i++) {
        const ArrivalNaps::Time nap = naps.next(0us);
        CHECK(nap >= before);
        before = nap;
    }
    CHECK(before == 50us);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(it_looks_without_a_pause_first),
        QTEST(ranks_that_share_cores_leave_them_to_others),
        QTEST(naps_grow_up_to_a_bound),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
