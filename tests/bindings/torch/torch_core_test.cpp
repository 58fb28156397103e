// Tests what the backend for torch.distributed needs of QCCL and of threads, without torch: the
// queue of calls, the threads of callbacks, and communicators, whose ranks are threads of this
// process.
#include "tests/bindings/torch/refused_threads.hpp"
#include "tests/kit/qtest.hpp"
#include "tests/kit/rank_threads.hpp"

#include "core/call_queue.hpp"
#include "core/callback_runner.hpp"
#include "core/communicator.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

using namespace qccl_torch;
using std::chrono::seconds;

namespace {

std::vector<int> numbers(size_t count) {
    std::vector<int> values(count);
    std::iota(values.begin(), values.end(), 0);
    return values;
}

// ---- The queue

void tasks_run_in_order() {
    CallQueue queue;
    std::vector<int> order;
    for (int i = 0; i < 100; i++) CHECK(queue.post([&order, i] { order.push_back(i); }));
    CHECK(queue.run_or_post([&order] { order.push_back(100); }));
    CHECK(queue.drain(seconds(30)));
    CHECK(order == numbers(101));
    std::thread::id where;
    CHECK(queue.run_or_post([&where] { where = std::this_thread::get_id(); }));
    CHECK(where == std::this_thread::get_id()); // nothing is ahead of it
    queue.close();
    CHECK(!queue.post([] {}) && !queue.run_or_post([] {}));
}

void a_queue_waits_for_the_callers_task() {
    CallQueue queue;
    std::promise<void> goes_on;
    std::atomic<int> done{0};
    std::promise<void> begun;
    std::thread caller([&] {
        queue.run_or_post([&] {
            begun.set_value();
            goes_on.get_future().wait();
            done = 1;
        });
    });
    begun.get_future().wait();
    CHECK(queue.post([&] { CHECK_EQ(done.exchange(2), 1); }));
    CHECK(!queue.drain(Milliseconds(20)));
    goes_on.set_value();
    CHECK(queue.drain(seconds(30)));
    CHECK_EQ(done.load(), 2);
    caller.join();
}

// ---- Callbacks

void callbacks_run_in_order() {
    CallbackRunner callbacks;
    std::vector<int> order;
    for (int i = 0; i < 100; i++)
        callbacks.post([&, i] {
            if (i == 0) std::this_thread::sleep_for(Milliseconds(5));
            CHECK(callbacks.is_own_thread());
            order.push_back(i);
        });
    CHECK(callbacks.drain(seconds(30)));
    CHECK(order == numbers(100));
    CHECK(!callbacks.is_own_thread());
}

// Each callback makes the next call and waits for its callback, as torch's hooks do.
void callbacks_wait_for_calls_that_they_make() {
    CallbackRunner callbacks;
    CallQueue queue;
    std::vector<int> order;
    std::function<void(int)> call = [&](int depth) {
        std::promise<void> done;
        auto is_done = done.get_future();
        CHECK(queue.post([&, depth] {
            order.push_back(depth);
            callbacks.post([&, depth] {
                callbacks.let_others_pass();
                if (depth < 5) call(depth + 1);
                done.set_value();
            });
        }));
        CHECK(is_done.wait_for(seconds(30)) == std::future_status::ready);
    };
    call(0);
    CHECK(queue.drain(seconds(30)) && callbacks.drain(seconds(30)));
    CHECK(order == numbers(6));
}

// Those that wait for callbacks behind them without a call of their own go on, too.
void callbacks_wait_for_later_ones() {
    CallbackRunner callbacks;
    std::array<std::promise<void>, 5> done;
    for (size_t i = 0; i < done.size(); i++)
        callbacks.post([&, i] {
            if (i + 1 < done.size()) done[i + 1].get_future().wait();
            done[i].set_value();
        });
    CHECK(callbacks.drain(seconds(30)));
}

void waiting_for_a_callback_has_an_end() {
    std::promise<void> goes_on;
    auto callbacks = std::make_unique<CallbackRunner>();
    std::promise<void> has_gone_on;
    callbacks->post([&] {
        goes_on.get_future().wait();
        has_gone_on.set_value();
    });
    CHECK(!callbacks->drain(Milliseconds(20)));
    auto drained = std::async(std::launch::async, [&] { return callbacks->drain(seconds(100)); });
    callbacks->stop_waiting();
    CHECK(drained.wait_for(seconds(20)) == std::future_status::ready);
    callbacks.reset(); // the callback outlives it
    goes_on.set_value();
    CHECK(has_gone_on.get_future().wait_for(seconds(30)) == std::future_status::ready);
}

// ---- Communicators

// An end that waits for a rank, for long, is over when another thread aborts.
void an_abort_ends_the_end() {
    qcclUniqueId id{};
    CHECK_EQ(qcclGetUniqueId(&id), qcclSuccess);
    std::promise<void> over;
    const std::shared_future<void> is_over = over.get_future().share();
    qtest::on_each_thread(2, [&](size_t rank) {
        Communicator own(id, static_cast<int>(rank), 2, {.timeout = seconds(120)}, [] {});
        int value = 1;
        if (rank == 1) {
            CHECK_EQ(qcclRecv(&value, 1, qcclInt32, 0, own.handle(), nullptr), qcclSuccess);
            is_over.wait();
            return;
        }
        CHECK_EQ(qcclSend(&value, 1, qcclInt32, 1, own.handle(), nullptr), qcclSuccess);
        // Rank 1 never receives the second message.
        CHECK_EQ(qcclSend(&value, 1, qcclInt32, 1, own.handle(), nullptr), qcclSuccess);
        auto end = std::async(std::launch::async, [&own] { own.end(seconds(100)); });
        CHECK(end.wait_for(Milliseconds(200)) == std::future_status::timeout);
        own.abort();
        CHECK(end.wait_for(seconds(20)) == std::future_status::ready);
        own.end(seconds(100));
        own.abort();
        over.set_value();
    });
}

void a_creation_can_be_given_up() {
    qcclUniqueId id{};
    CHECK_EQ(qcclGetUniqueId(&id), qcclSuccess);
    int looks = 0;
    const auto give_up = [&looks] {
        if (++looks == 5) throw std::runtime_error("given up");
    };
    bool is_given_up = false;
    try {
        const Communicator alone(id, 0, 2, {.timeout = seconds(120)}, give_up);
    } catch (const std::runtime_error &) {
        is_given_up = true;
    }
    CHECK(is_given_up);
}

// ---- No threads

void what_needs_a_thread_fails_without() {
    CallQueue queue;
    std::vector<int> order;
    bool is_refused = false;
    try {
        const NoThreads none;
        queue.post([&] { order.push_back(1); });
    } catch (const std::system_error &) {
        is_refused = true;
    }
    CHECK(is_refused);
    CHECK(queue.post([&] { order.push_back(2); }));
    CHECK(queue.drain(seconds(30)));
    CHECK(order == std::vector<int>{2}); // the refused task is not in the queue

    CallbackRunner callbacks;
    std::thread::id where;
    {
        const NoThreads none;
        callbacks.post([&] { where = std::this_thread::get_id(); });
    }
    CHECK(where == std::this_thread::get_id());
}

void a_communicator_ends_without_a_thread() {
    qcclUniqueId id{};
    CHECK_EQ(qcclGetUniqueId(&id), qcclSuccess);
    Communicator alone(id, 0, 1, {.timeout = seconds(30)}, [] {});
    const NoThreads none;
    alone.end(seconds(30));
    int size = 0;
    CHECK_EQ(qcclCommCount(alone.handle(), &size), qcclInvalidUsage);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        QTEST(tasks_run_in_order),
        QTEST(a_queue_waits_for_the_callers_task),
        QTEST(callbacks_run_in_order),
        QTEST(callbacks_wait_for_calls_that_they_make),
        QTEST(callbacks_wait_for_later_ones),
        QTEST(waiting_for_a_callback_has_an_end),
        QTEST(an_abort_ends_the_end),
        QTEST(a_creation_can_be_given_up),
        QTEST(what_needs_a_thread_fails_without),
        QTEST(a_communicator_ends_without_a_thread),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
