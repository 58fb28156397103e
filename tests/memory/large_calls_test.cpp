// Tests RecentLargeCall: memory of a large call is kept for a fixed number of calls after it, and
// each large call among them starts the count anew.
#include "tests/kit/qtest.hpp"

#include "memory/large_calls.hpp"

using namespace qccl;

// Ends calls that are not large. Returns after how many of them the memory is no longer kept.
static uint32_t count_kept(RecentLargeCall &recent) {
    uint32_t calls = 1;
    while (recent.end_call()) calls++;
    return calls;
}

static void nothing_is_kept_before_a_large_call() {
    RecentLargeCall recent;
    CHECK(!recent.keeps_memory());
    CHECK(!recent.end_call());
    CHECK(!recent.keeps_memory());
}

static void memory_is_kept_for_some_calls() {
    RecentLargeCall recent;
    recent.note();
    CHECK(recent.end_call()); // the large call itself
    CHECK(recent.keeps_memory());
    CHECK_EQ(count_kept(recent), large_calls_kept);
    CHECK(!recent.keeps_memory());
    CHECK(!recent.end_call());
}

static void another_large_call_starts_the_count_anew() {
    RecentLargeCall recent;
    recent.note();
    for (uint32_t call = 0; call < large_calls_kept; call++) CHECK(recent.end_call());
    recent.note();
    recent.note(); // twice in one call counts once
    CHECK(recent.end_call());
    CHECK_EQ(count_kept(recent), large_calls_kept);
}

static void a_large_call_counts_after_the_memory_has_gone() {
    RecentLargeCall recent;
    recent.note();
    recent.end_call();
    count_kept(recent);
    recent.note();
    CHECK(recent.end_call());
    CHECK_EQ(count_kept(recent), large_calls_kept);
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(nothing_is_kept_before_a_large_call),
        QTEST(memory_is_kept_for_some_calls),
        QTEST(another_large_call_starts_the_count_anew),
        QTEST(a_large_call_counts_after_the_memory_has_gone),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
