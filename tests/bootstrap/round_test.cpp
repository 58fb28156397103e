// Tests Round and missing_ranks() of bootstrap/rendezvous_state and the deadlines of
// lib/base/clock: the data of one all-gather, the ranks that it waits for, and the deadline of the
// wait.
#include "tests/kit/qtest.hpp"

#include "base/clock.hpp"
#include "bootstrap/rendezvous_state.hpp"

#include <array>

using namespace qccl;
using namespace std::chrono_literals;

static std::span<const std::byte> bytes_of(const std::array<std::byte, 2> &bytes) { return bytes; }

static void what_came_lies_in_rank_order() {
    Round round(3);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(!round.has_begun());
        for (const uint32_t rank : {2U, 0U, 1U}) {
            CHECK(!round.is_complete());
            CHECK_OK(round.add(rank, bytes_of({std::byte(rank), std::byte(turn)})));
        }
        CHECK(round.is_complete());
        CHECK_EQ(round.first(), 2U);
        const Payload all = round.take();
        CHECK_EQ(all->size(), size_t{6});
        for (size_t rank = 0; rank < 3; rank++) {
            CHECK((*all)[2 * rank] == std::byte(rank));
            CHECK((*all)[2 * rank + 1] == std::byte(turn));
        }
    }
}

static void who_gives_twice_or_otherwise_is_refused() {
    Round round(3);
    CHECK_OK(round.add(1, bytes_of({})));
    const Done twice = round.add(1, bytes_of({}));
    CHECK_EQ(std::string(twice.error().text), "rank 1 gives twice to one exchange");
    const Done more = round.add(2, std::array<std::byte, 3>{});
    CHECK_EQ(std::string(more.error().text), "rank 2 gives 3 bytes to an exchange, rank 1 2");
    CHECK_EQ(more.error().rank, 2);
    CHECK_EQ(round.missing().text, "ranks 0 and 2");
}

static void the_missing_are_named_up_to_nine() {
    const auto missing = [](size_t number) {
        std::vector<bool> came(number + 1);
        came[0] = true;
        const Missing found = missing_ranks(came);
        CHECK_EQ(found.first, number == 0 ? Error::no_rank : 1);
        return found.text;
    };
    CHECK_EQ(missing(0), "");
    CHECK_EQ(missing(1), "rank 1");
    CHECK_EQ(missing(2), "ranks 1 and 2");
    CHECK_EQ(missing(3), "ranks 1, 2 and 3");
    CHECK_EQ(missing(9), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 9");
    CHECK_EQ(missing(10), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

static void no_wait_ends_before_its_deadline() {
    const TimePoint now{std::chrono::hours(1)};
    CHECK(deadline_after(now, 0s) == TimePoint::max());
    CHECK(deadline_after(now, std::chrono::nanoseconds::max()) == TimePoint::max());
    CHECK(deadline_after(now, 3s) == now + 3s);
    CHECK_EQ(poll_timeout_ms(now, now), 0);
    CHECK_EQ(poll_timeout_ms(now, now - 1s), 0);
    CHECK_EQ(poll_timeout_ms(now, now + 1ns), 1);
    CHECK_EQ(poll_timeout_ms(now, now + 5ms), 5);
    CHECK_EQ(poll_timeout_ms(now, now + 5ms + 1ns), 6);
    CHECK_EQ(poll_timeout_ms(now, TimePoint::max()), 60000);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(what_came_lies_in_rank_order),
        QTEST(who_gives_twice_or_otherwise_is_refused),
        QTEST(the_missing_are_named_up_to_nine),
        QTEST(no_wait_ends_before_its_deadline),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
