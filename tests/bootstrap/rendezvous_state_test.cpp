// Tests bootstrap/rendezvous_state: the server stops members that do what no rank of this release
// does, and members that leave while they are needed, and names them to all ranks.
#include "tests/kit/qtest.hpp"

#include "bootstrap/rendezvous_state.hpp"

using namespace qccl;
using namespace std::chrono_literals;

using Farewell = RendezvousState::Farewell;

static constexpr TimePoint now{std::chrono::hours(1)};

static RendezvousState some_assembly(uint32_t joined, uint32_t size) {
    RendezvousState assembly(now, 30s);
    for (uint32_t rank = 0; rank < joined; rank++)
        CHECK_OK(assembly.join({.rank = rank, .size = size}, "somewhere"));
    return assembly;
}

static void contribute(RendezvousState &assembly, uint32_t first, uint32_t end) {
    for (uint32_t rank = first; rank < end; rank++) assembly.contribute(rank, {}, now);
}

static void check_failed(const RendezvousState &assembly, int32_t rank,
                         const std::string &sentence) {
    CHECK(assembly.failure().has_value());
    CHECK_EQ(std::string(assembly.failure()->text), sentence);
    CHECK_EQ(assembly.failure()->rank, rank);
}

static void who_contributes_before_all_are_here_is_named() {
    RendezvousState assembly = some_assembly(2, 3);
    CHECK(!assembly.is_complete());
    assembly.contribute(1, {}, now);
    check_failed(assembly, 1, "rank 1 came to an exchange too early");
    CHECK(!assembly.take_result());
}

static void who_contributes_too_much_is_named() {
    const std::vector<std::byte> most(most_contributed_bytes);
    RendezvousState fits = some_assembly(2, 2);
    fits.contribute(0, most, now);
    fits.contribute(1, most, now);
    CHECK(!fits.failure());
    CHECK_EQ(fits.take_result()->size(), 2 * most.size());

    RendezvousState too_much = some_assembly(2, 2);
    too_much.contribute(1, std::vector<std::byte>(most.size() + 1), now);
    check_failed(too_much, 1, "rank 1 gives 1048577 bytes to an exchange: too many");

    // The largest contribution of one rank is too large if that many ranks make it.
    constexpr uint32_t many = most_gathered_bytes / most_contributed_bytes + 1;
    RendezvousState too_many = some_assembly(many, many);
    CHECK(too_many.is_complete());
    too_many.contribute(2, most, now);
    check_failed(too_many, 2, "rank 2 gives 1048576 bytes to an exchange: too many");
}

static void who_is_waited_for_is_named() {
    RendezvousState coming = some_assembly(2, 4);
    coming.depart(1, Farewell::give_up);
    check_failed(coming, 2, "rank 1 gave up waiting for ranks 2 and 3 of 4");

    RendezvousState exchanging = some_assembly(4, 4);
    contribute(exchanging, 0, 3);
    exchanging.depart(0, Farewell::give_up);
    check_failed(exchanging, 3, "rank 0 gave up waiting for rank 3 of 4");
}

// Rank 2 runs out of time while the result is on its way.
static void who_gives_up_with_nobody_missing_is_named() {
    RendezvousState assembly = some_assembly(4, 4);
    contribute(assembly, 0, 4);
    CHECK(assembly.take_result() != nullptr);
    CHECK_EQ(assembly.missing().first, Error::no_rank);
    assembly.depart(2, Farewell::give_up);
    check_failed(assembly, 2, "rank 2 gave up before the result of an exchange had reached it");
    CHECK(assembly.failure()->code == Code::timeout);
}

static void who_leaves_in_order_disturbs_nobody() {
    RendezvousState assembly = some_assembly(4, 4);
    contribute(assembly, 0, 4);
    CHECK(assembly.take_result() != nullptr);
    for (uint32_t rank = 0; rank < 4; rank++) {
        CHECK(!assembly.is_over());
        assembly.depart(rank, Farewell::leave);
    }
    CHECK(!assembly.failure());
    CHECK(assembly.is_over());
}

static void who_goes_and_is_needed_is_named() {
    RendezvousState left = some_assembly(4, 4);
    left.depart(3, Farewell::leave);
    CHECK(!left.failure());
    contribute(left, 1, 2);
    check_failed(left, 3, "rank 3 left before the exchange that rank 1 waits in");

    RendezvousState died = some_assembly(3, 4);
    died.depart(2, Farewell::none);
    check_failed(died, 2, "rank 2 (somewhere) died");
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(who_contributes_before_all_are_here_is_named),
        QTEST(who_contributes_too_much_is_named),
        QTEST(who_is_waited_for_is_named),
        QTEST(who_gives_up_with_nobody_missing_is_named),
        QTEST(who_leaves_in_order_disturbs_nobody),
        QTEST(who_goes_and_is_needed_is_named),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
