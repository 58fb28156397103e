// Which rules of QCCL_CODEC, QCCL_ALGO and QCCL_PLAN_FILE have decided a call of this process, so
// that those which never do are reported. Communicators that read the same rules share a record as
// long as one of them lives, since a rule is often for some communicators only. Any thread may call
// everything here; join and leave block for a moment on each other.
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
    // For a communicator of `size` ranks, in which this one is `rank`. Null where no rule has
    // conditions: what concerns all calls is nothing to report.
    static std::shared_ptr<RuleUse> join(const EnvRules &rules, uint32_t rank, uint32_t size);

    // Null: no rule decided.
    void note(const Rule *rule) {
        if (!has_calls_.load(std::memory_order_relaxed))
            has_calls_.store(true, std::memory_order_relaxed);
        if (rule) mark(*rule);
    }
    // When a communicator that joined ends. Of the last one, if calls were made and this process
    // speaks for its job: sentences on the rules that have decided none. Null: none.
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

    std::vector<std::unique_ptr<Watched>> watched_; // by source and number
    std::atomic<bool> has_calls_{false};
    // Of the largest communicator that joined. One rank shall speak for a job: the process in which
    // that one's rank 0 is.
    uint32_t size_ = 0, lowest_rank_ = 0;
};

} // namespace qccl
