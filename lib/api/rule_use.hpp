// Records which rules of QCCL_CODEC, QCCL_ALGO and QCCL_PLAN_FILE have decided a call of this
// process, so that unused rules can be reported. Communicators that read the same rules share a
// record as long as one of them lives, because a rule is often for some communicators only. Any
// thread may call everything here; join and leave block each other for a moment.
#pragma once

#include "plan/call_policy.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace qccl {

class RuleUse {
public:
    // For a communicator of `size` ranks, in which this rank is `rank`. Returns null if no rule has
    // conditions: a rule for all calls needs no report.
    static std::shared_ptr<RuleUse> join(const EnvRules &rules, uint32_t rank, uint32_t size);

    // Notes a call that `rule` has decided; null: no rule has.
    void note(const Rule *rule) {
        if (!has_calls_.load(std::memory_order_relaxed))
            has_calls_.store(true, std::memory_order_relaxed);
        if (rule) mark(*rule);
    }
    // Called when a communicator that joined ends; null does nothing. For the last one, if calls
    // were made and this process speaks for its job, returns sentences about the rules that have
    // decided no call.
    static std::vector<std::string> leave(std::shared_ptr<RuleUse> use);

private:
    struct Watched {
        const RuleSource *source = nullptr;
        uint32_t number = 0;
        std::string text;
        std::atomic<bool> is_used{false};
    };
    explicit RuleUse(const EnvRules &rules);
    void mark(const Rule &rule);
    std::vector<std::string> report() const;

    std::vector<std::unique_ptr<Watched>> watched_; // sorted by source and number
    std::atomic<bool> has_calls_{false};
    // These describe the largest communicator that joined. One process speaks for a job: the one
    // that has that communicator's rank 0.
    uint32_t size_ = 0, lowest_rank_ = 0;
};

} // namespace qccl
