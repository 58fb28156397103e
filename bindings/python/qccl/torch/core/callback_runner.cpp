// Threads start when a task is there and no thread is idle: usually one runs a task, and at most
// one waits for its end.
#include "core/callback_runner.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace qccl_torch {

namespace {

// A callback that takes longer may be waiting for one behind it.
constexpr Milliseconds longest_turn{20};

} // namespace

struct CallbackRunner::State {
    std::mutex mutex;
    std::condition_variable has_changed;
    std::deque<Task> tasks;
    uint64_t last_turn = 0;
    uint64_t current_turn = 0; // of the task for which those behind it wait; 0: none
    std::chrono::steady_clock::time_point turn_began;
    int threads = 0, idle_threads = 0, running_tasks = 0;
    bool is_ending = false, is_waiting_over = false;

    bool start_thread(const std::shared_ptr<State> &own);
    void work(const std::shared_ptr<State> &own);
    void await_turn(std::unique_lock<std::mutex> &lock);
    void run_first(std::unique_lock<std::mutex> &lock);
};

namespace {

struct RunningTask {
    const void *runner = nullptr;
    uint64_t turn = 0;
};
thread_local RunningTask running_task;

} // namespace

// With the lock held. Returns false if there is no thread, and none can be made.
bool CallbackRunner::State::start_thread(const std::shared_ptr<State> &own) {
    try {
        std::thread([own] { own->work(own); }).detach();
        threads++;
        idle_threads++;
    } catch (const std::system_error &) {} // another thread runs the task later
    return threads != 0;
}

void CallbackRunner::State::work(const std::shared_ptr<State> &own) {
    std::unique_lock lock(mutex);
    for (;;) {
        has_changed.wait(lock, [this] { return !tasks.empty() || is_ending; });
        await_turn(lock);
        if (tasks.empty() && !is_ending) continue;
        idle_threads--;
        if (tasks.empty()) break;
        if (tasks.size() > 1 && idle_threads == 0) start_thread(own);
        run_first(lock);
        idle_threads++;
    }
    threads--;
}

void CallbackRunner::State::await_turn(std::unique_lock<std::mutex> &lock) {
    while (!tasks.empty() && current_turn != 0) {
        const auto turn = current_turn;
        const bool has_ended = has_changed.wait_until(
            lock, turn_began + longest_turn, [&] { return current_turn != turn || tasks.empty(); });
        if (!has_ended) current_turn = 0;
    }
}

void CallbackRunner::State::run_first(std::unique_lock<std::mutex> &lock) {
    Task task = std::move(tasks.front());
    tasks.pop_front();
    const uint64_t turn = ++last_turn;
    current_turn = turn;
    turn_began = std::chrono::steady_clock::now();
    running_tasks++;
    lock.unlock();
    running_task = {.runner = this, .turn = turn};
    task();
    task = nullptr;
    running_task = {};
    lock.lock();
    running_tasks--;
    if (current_turn == turn) current_turn = 0;
    has_changed.notify_all();
}

CallbackRunner::CallbackRunner() : state_(std::make_shared<State>()) {}

CallbackRunner::~CallbackRunner() { end_threads(); }

void CallbackRunner::post(Task task) {
    std::unique_lock lock(state_->mutex);
    if (state_->idle_threads == 0 && !state_->start_thread(state_)) {
        lock.unlock();
        return task();
    }
    state_->tasks.push_back(std::move(task));
    state_->has_changed.notify_all();
}

bool CallbackRunner::is_own_thread() const { return running_task.runner == state_.get(); }

void CallbackRunner::let_others_pass() {
    if (!is_own_thread()) return;
    const std::lock_guard lock(state_->mutex);
    if (state_->current_turn != running_task.turn) return;
    state_->current_turn = 0;
    state_->has_changed.notify_all();
}

bool CallbackRunner::drain(Milliseconds patience) {
    std::unique_lock lock(state_->mutex);
    const auto is_empty = [this] { return state_->tasks.empty() && state_->running_tasks == 0; };
    state_->has_changed.wait_for(lock, patience,
                                 [&] { return is_empty() || state_->is_waiting_over; });
    return is_empty();
}

void CallbackRunner::stop_waiting() {
    const std::lock_guard lock(state_->mutex);
    state_->is_waiting_over = true;
    state_->has_changed.notify_all();
}

void CallbackRunner::end_threads() {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
    state_->has_changed.notify_all();
}

} // namespace qccl_torch
