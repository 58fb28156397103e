// Tests kernels/gpu/emulated: the threads of a block run in lockstep, and behaviour that a GPU
// leaves undefined is detected and named.
#include "tests/kit/qtest.hpp"

#include "kernels/gpu/emulated.hpp"

#include <atomic>
#include <string>
#include <vector>

using namespace qccl;
using namespace qccl::emulated;

namespace {

constexpr unsigned widths[] = {32, 64};
constexpr Order orders[] = {Order::forward, Order::reverse};

// Returns the fault that the launch reports; empty if the kernel is well-defined.
std::string fault_of(const Grid &grid, const std::function<void()> &kernel) {
    const Done forward = launch(grid, Order::forward, kernel),
               backward = launch(grid, Order::reverse, kernel);
    CHECK_EQ(bool(forward), bool(backward));
    return forward ? "" : forward.error().text;
}
bool has(const std::string &text, const char *part) { return text.find(part) != text.npos; }

} // namespace

static void every_thread_of_every_block_runs_once() {
    for (const unsigned lanes : widths)
        for (const Order order : orders) {
            std::vector<int> runs(5 * 128);
            CHECK_OK(launch({.blocks = 5, .threads = 128, .lanes = lanes}, order, [&] {
                CHECK_EQ(blocks(), 5U);
                runs[block() * 128 + thread()]++;
            }));
            for (const int count : runs) CHECK_EQ(count, 1);
        }
}

static void lanes_exchange_and_vote() {
    for (const unsigned lanes : widths)
        for (const Order order : orders) {
            std::vector<uint64_t> sums(128), votes(128);
            CHECK_OK(launch({.blocks = 1, .threads = 128, .lanes = lanes}, order, [&] {
                uint64_t sum = thread();
                for (unsigned mask = 1; mask < lanes; mask *= 2) sum += exchange(sum, mask);
                sums[thread()] = sum;
                votes[thread()] = ballot(thread() % 3 == 0);
            }));
            for (unsigned i = 0; i < 128; i++) {
                const uint64_t first = i / lanes * lanes;
                uint64_t sum = 0, vote = 0;
                for (uint64_t lane = 0; lane < lanes; lane++) {
                    sum += first + lane;
                    vote |= uint64_t{(first + lane) % 3 == 0} << lane;
                }
                CHECK_EQ(sums[i], sum);
                CHECK_EQ(votes[i], vote);
            }
        }
}

static void a_barrier_orders_shared_memory() {
    for (const Order order : orders) {
        std::vector<int> seen(64);
        CHECK_OK(launch({.blocks = 2, .threads = 64, .lanes = 32}, order, [&] {
            const auto numbers = shared<int>(64);
            numbers[thread()] = static_cast<int>(thread());
            barrier();
            seen[thread()] = numbers[63 - thread()];
        }));
        for (int i = 0; i < 64; i++) CHECK_EQ(seen[static_cast<size_t>(i)], 63 - i);
    }
}

static void a_missing_barrier_is_found() {
    const auto fault = fault_of({.blocks = 1, .threads = 64, .lanes = 32}, [] {
        const auto numbers = shared<int>(64);
        numbers[thread()] = 1;
        (void)int(numbers[63 - thread()]);
    });
    CHECK(has(fault, "without a barrier"));
    // The race is found even if a single thread reads what another one writes afterwards.
    CHECK(has(fault_of({.blocks = 1, .threads = 64, .lanes = 32},
                       [] {
                           const auto number = shared<int>(1);
                           if (thread() == 0) number[0] = 1;
                           barrier();
                           (void)int(number[0]);
                           if (thread() == 5) number[0] = 2;
                       }),
              "without a barrier"));
}

static void what_all_add_to_needs_no_barrier_between() {
    for (const unsigned lanes : widths)
        for (const Order order : orders) {
            std::vector<unsigned> seen(64);
            CHECK_OK(launch({.blocks = 2, .threads = 64, .lanes = lanes}, order, [&] {
                const auto sums = shared<unsigned>(2);
                if (thread() < 2) sums[thread()] = 0;
                barrier();
                sums[thread() % 2].add(thread());
                sums[thread() % 2].add(1);
                barrier();
                seen[thread()] = sums[thread() % 2];
            }));
            for (unsigned i = 0; i < 64; i++) CHECK_EQ(seen[i], i % 2 == 0 ? 1024U : 1056U);
        }
    // Adding counts as neither reading nor writing, so it conflicts with both.
    const Grid grid{.blocks = 1, .threads = 64, .lanes = 32};
    CHECK(has(fault_of(grid,
                       [] {
                           const auto sum = shared<unsigned>(1);
                           if (thread() % 2 == 0)
                               sum[0].add(1);
                           else
                               (void)unsigned(sum[0]);
                       }),
              "without a barrier"));
    CHECK(has(fault_of(grid,
                       [] {
                           const auto sum = shared<unsigned>(1);
                           if (thread() == 0) sum[0] = 0;
                           sum[0].add(1);
                       }),
              "without a barrier"));
}

static void lanes_that_part_are_found() {
    CHECK(has(fault_of({.blocks = 1, .threads = 32, .lanes = 32},
                       [] {
                           if (thread() % 2 == 0)
                               exchange(1, 2);
                           else
                               ballot(true);
                       }),
              "different places"));
    // The same exchange occurs in two places. (Inside a macro's argument both would have the same
    // line number.)
    const auto meets_twice = [] {
        if (thread() % 2 == 0)
            exchange(1, 2);
        else
            exchange(1, 2);
    };
    CHECK(
        has(fault_of({.blocks = 1, .threads = 32, .lanes = 32}, meets_twice), "different places"));
    CHECK(has(fault_of({.blocks = 1, .threads = 64, .lanes = 64},
                       [] {
                           if (thread() == 7) return;
                           exchange(1, 1);
                       }),
              "different places"));
    CHECK(has(fault_of({.blocks = 1, .threads = 64, .lanes = 32},
                       [] {
                           if (thread() < 32) barrier();
                       }),
              "at a barrier"));
}

static void what_a_block_does_not_have_is_refused() {
    CHECK(has(fault_of({.blocks = 1, .threads = 32, .lanes = 32}, [] { exchange(1, 32); }),
              "a lane that the warp does not have"));
    CHECK(has(fault_of({.blocks = 1, .threads = 32, .lanes = 32}, [] { shared<char>(50000); }),
              "more shared memory"));
    CHECK(has(
        fault_of({.blocks = 1, .threads = 32, .lanes = 32}, [] { (void)int(shared<int>(4)[4]); }),
        "beyond the end"));
    CHECK(!launch({.blocks = 1, .threads = 48, .lanes = 32}, Order::forward, [] {}));
}

// A fault leaves threads behind that never end. They must not disturb the next launch.
static void a_launch_after_a_fault_is_whole() {
    for (int i = 0; i < 3; i++) {
        CHECK(!fault_of({.blocks = 2, .threads = 64, .lanes = 32}, [] {
                   if (thread() == 3) return;
                   barrier();
               }).empty());
        std::atomic<int> runs = 0;
        CHECK_OK(launch({.blocks = 3, .threads = 64, .lanes = 32}, Order::forward, [&] {
            barrier();
            runs++;
        }));
        CHECK_EQ(runs.load(), 3 * 64);
    }
}

int main() {
    const CMUnitTest tests[] = {
        QTEST(every_thread_of_every_block_runs_once),    QTEST(lanes_exchange_and_vote),
        QTEST(a_barrier_orders_shared_memory),           QTEST(a_missing_barrier_is_found),
        QTEST(what_all_add_to_needs_no_barrier_between), QTEST(lanes_that_part_are_found),
        QTEST(what_a_block_does_not_have_is_refused),    QTEST(a_launch_after_a_fault_is_whole),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
