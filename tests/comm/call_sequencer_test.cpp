// Tests CallSequencer of lib/comm/call_order: calls run in the order of their numbers, and a
// communicator that closes lets the running call finish and starts no other.
#include "tests/kit/qtest.hpp"

#include "comm/call_order.hpp"

#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

using namespace qccl;
using namespace std::chrono_literals;

static void calls_run_in_their_order() {
    CallSequencer turns;
    std::string order;
    const uint64_t first = turns.issue(), second = turns.issue(), third = turns.issue();
    for (int i = 0; i < 3; i++) turns.enqueued();
    const auto run = [&](uint64_t call, char letter) {
        CHECK(turns.await(call));
        CHECK(turns.is_running_here());
        order += letter;
        turns.finish(call, true);
        CHECK(!turns.is_running_here());
    };
    std::thread late([&] { run(third, 'c'); }), next([&] { run(second, 'b'); });
    std::this_thread::sleep_for(20ms);
    CHECK(!turns.is_idle());
    run(first, 'a');
    turns.await_all();
    CHECK(turns.is_idle());
    late.join();
    next.join();
    CHECK_EQ(order, "abc");
}

static void a_call_forgone_leaves_their_turns_to_those_before() {
    CallSequencer turns;
    const uint64_t first = turns.issue(), second = turns.issue();
    turns.issue();
    for (int i = 0; i < 3; i++) turns.enqueued();
    CHECK(turns.await(first));
    turns.forgo();
    CHECK(turns.is_running_here());
    std::thread waiter([&] { turns.await_all(); });
    turns.finish(first, true);
    CHECK(!turns.is_idle());
    CHECK(turns.await(second));
    turns.finish(second, true);
    waiter.join();
    CHECK(turns.is_idle());

    // await_all also returns if the last call that it waits for is forgone.
    turns.issue();
    turns.enqueued();
    std::thread last([&] { turns.await_all(); });
    std::this_thread::sleep_for(20ms);
    turns.forgo();
    last.join();
}

static void closing_waits_for_the_call_that_runs() {
    CallSequencer turns;
    const uint64_t first = turns.issue(), second = turns.issue();
    std::atomic<bool> runs = false, has_run = false, may_second = true;
    std::thread runner([&] {
        runs = turns.await(first);
        std::this_thread::sleep_for(100ms);
        has_run = true;
        turns.finish(first, false);
    });
    std::thread waiter([&] { may_second = turns.await(second); });
    while (!runs) std::this_thread::yield();
    turns.close();
    CHECK(has_run);
    waiter.join();
    CHECK(!may_second);
    CHECK(!turns.await(second));
    runner.join();
}

// The thread with the hold takes the turns that it needs. Other threads wait, and find the
// sequencer closed if that thread has closed it.
static void a_hold_keeps_others_from_their_turns() {
    for (const bool closes : {false, true}) {
        CallSequencer turns;
        std::atomic<bool> is_held = true;
        std::optional<CallSequencer::Hold> hold(std::in_place, turns);
        CHECK(*hold);
        std::optional<uint64_t> number;
        bool was_held = true;
        std::thread other([&] {
            number = turns.await_next();
            was_held = is_held;
            if (number) turns.finish(*number, false);
        });
        const auto own = turns.await_next();
        CHECK(own == uint64_t{1});
        turns.finish(*own, false);
        CHECK(turns.is_running_here());
        std::this_thread::sleep_for(20ms);
        is_held = false;
        if (closes) turns.close();
        hold.reset();
        other.join();
        CHECK(!was_held);
        CHECK(number == (closes ? std::nullopt : std::optional(uint64_t{2})));
        CHECK(!turns.is_running_here());
        CHECK(static_cast<bool>(CallSequencer::Hold(turns)) == !closes);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(calls_run_in_their_order),
        QTEST(a_call_forgone_leaves_their_turns_to_those_before),
        QTEST(closing_waits_for_the_call_that_runs),
        QTEST(a_hold_keeps_others_from_their_turns),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
