#include "tests/kit/rank_threads.hpp"

#include "tests/kit/qtest.hpp"

#include <exception>
#include <utility>

namespace qtest {

RankThreads::RankThreads(size_t ranks) : failures_(ranks) {
    for (size_t rank = 0; rank < ranks; rank++)
        threads_.emplace_back([this, rank] { serve(rank); });
}

RankThreads::~RankThreads() {
    {
        const std::lock_guard lock(mutex_);
        function_ = nullptr;
        round_++;
    }
    begins_.notify_all();
    for (std::thread &thread : threads_) thread.join();
}

void RankThreads::run(const RankFunction &function) {
    std::unique_lock lock(mutex_);
    failures_.assign(threads_.size(), std::nullopt);
    function_ = &function;
    running_ = threads_.size();
    round_++;
    begins_.notify_all();
    ended_.wait(lock, [this] { return running_ == 0; });
    std::string text;
    for (size_t rank = 0; rank < failures_.size(); rank++)
        if (failures_[rank])
            text += (text.empty() ? "rank " : "\nrank ") + std::to_string(rank) + ": " +
                    *failures_[rank];
    if (!text.empty()) throw Failure{text};
}

static std::optional<std::string> failure_of(const RankFunction &function, size_t rank) {
    try {
        function(rank);
        return std::nullopt;
    } catch (const Failure &failure) {
        return failure.text;
    } catch (const std::exception &exception) {
        return std::string("exception: ") + exception.what();
    }
}

void RankThreads::serve(size_t rank) {
    std::unique_lock lock(mutex_);
    for (uint64_t seen = 0;;) {
        begins_.wait(lock, [&] { return round_ != seen; });
        seen = round_;
        if (!function_) return;
        const RankFunction &function = *function_;
        lock.unlock();
        auto failure = failure_of(function, rank);
        lock.lock();
        failures_[rank] = std::move(failure);
        if (--running_ == 0) ended_.notify_one();
    }
}

void on_each_thread(size_t ranks, const RankFunction &function) {
    RankThreads(ranks).run(function);
}

} // namespace qtest
