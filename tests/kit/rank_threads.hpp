// A thread for each rank of a test, for ranks that live in one process. `run` and `on_each_thread`
// block.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace qtest {

using RankFunction = std::function<void(size_t rank)>;

// The threads are kept from call to call: starting one takes longer than a small collective.
class RankThreads {
public:
    explicit RankThreads(size_t ranks);
    ~RankThreads();
    RankThreads(const RankThreads &) = delete;

    // Runs function(rank) on each thread, waits for all, and throws the failures of all ranks as
    // one: that of one rank may only follow from another's. An exception other than a Failure
    // counts as one, too.
    void run(const RankFunction &function);

private:
    void serve(size_t rank);

    std::mutex mutex_;
    std::condition_variable begins_, ended_;
    uint64_t round_ = 0;
    const RankFunction *function_ = nullptr; // of the round; null: the threads end
    size_t running_ = 0;
    std::vector<std::optional<std::string>> failures_; // by rank, of the round
    std::vector<std::thread> threads_;
};

// Runs function(rank) on a new thread for each rank, waits for all, and throws their failures.
void on_each_thread(size_t ranks, const RankFunction &function);

} // namespace qtest
