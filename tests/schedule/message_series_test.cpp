// Tests places_in_series() of lib/schedule/lower: which messages to, or from, one peer form a
// series.
#include "tests/kit/qtest.hpp"

#include "schedule/lower.hpp"

using namespace qccl;

// Computing steps do not end a series; a message to or from another peer, or in the other
// direction, does.
static void a_series_ends_with_its_peer_or_its_direction() {
    Schedule s{.chunks = 8};
    s.send(1, input(0));
    s.copy(output(3), sum(3));
    s.send(1, input(1));
    s.send(1, input(2));
    s.send(2, input(2));
    s.send(1, input(3));
    s.recv(1, wire(0), 4);
    s.recv(1, wire(1), 5);
    s.reduce(sum(4), wire(0), 4);
    s.recv(3, wire(2), 6);
    s.send(3, input(7));
    CHECK(places_in_series(s) == std::vector<uint32_t>({0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0}));
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(a_series_ends_with_its_peer_or_its_direction),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
