// CommErrors holds the errors of one communicator: the last error, for functions that report it,
// and the failure that ended the communicator. Any thread may call it at any time.
#pragma once

#include "base/result.hpp"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

namespace qccl {

// The call that an error came from.
struct CallRecord {
    static constexpr int32_t no_collective = -1;

    int32_t collective = no_collective;
    uint64_t number = 0; // 0: the call was refused before it had a number
    uint64_t tag = 0;
};

// Returns the error as all ranks see it: with the call, if it came from one, and with this rank if
// it names no rank.
Error located(const Error &error, const CallRecord &call, uint32_t own_rank);

struct RecordedError {
    Error error;
    CallRecord call;
};

class CommErrors {
public:
    // Records an error that the caller got: the failure once more, or a refusal, which has no call.
    // `had_failed`: the transport had a failure by then.
    void note(const Error &error, bool had_failed) {
        const std::lock_guard lock(mutex_);
        const bool is_failure = failure_ && is_same(failure_->error, error);
        if (is_failure) note_told();
        last_ = is_failure ? *failure_ : RecordedError{error, {}};
        last_follows_failure_ = had_failed;
        has_refusal_.store(!is_failure, std::memory_order_relaxed);
    }
    // Records that the caller knows of the failure. A stream's thread that finds the failure does
    // not tell the caller; the stream or another call does so when it returns the failure.
    void note_told() { is_told_->store(true, std::memory_order_relaxed); }
    bool is_told() const { return is_told_->load(std::memory_order_relaxed); }
    // For a stream that may return the failure, perhaps after the communicator's end.
    const std::shared_ptr<std::atomic<bool>> &told_flag() const { return is_told_; }
    // Records that the caller's call succeeded: this ends an earlier refusal, but not a failure.
    // Every call comes here, so the lock is taken only if there is a refusal to forget
    // (and the function is inlined, though the compiler takes it for rare).
    [[gnu::always_inline]] void note_success() {
        if (!has_refusal_.load(std::memory_order_relaxed)) return;
        const std::lock_guard lock(mutex_);
        last_ = failure_;
        last_follows_failure_ = false;
        has_refusal_.store(false, std::memory_order_relaxed);
    }
    // Returns the last error, or `outside`, the transport's failure, if no call of this rank has
    // found that failure yet.
    std::optional<RecordedError> last(const std::optional<Error> &outside) const {
        const std::lock_guard lock(mutex_);
        const bool is_news = outside && !failure_ && !(last_ && last_follows_failure_);
        return is_news ? RecordedError{*outside, {}} : last_;
    }

    // Records the failure, unless one is already recorded.
    void fail(const Error &error, const CallRecord &call) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = {error, call};
        last_ = failure_;
        has_refusal_.store(false, std::memory_order_relaxed);
        has_failed_.store(true, std::memory_order_release);
    }
    bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
    std::optional<RecordedError> failure() const {
        const std::lock_guard lock(mutex_);
        return failure_;
    }

private:
    static bool is_same(const Error &a, const Error &b) {
        return a.code == b.code && std::strcmp(a.text, b.text) == 0;
    }

    mutable std::mutex mutex_;
    std::optional<RecordedError> last_, failure_;
    bool last_follows_failure_ = false; // the transport's failure
    std::atomic<bool> has_failed_{false};
    const std::shared_ptr<std::atomic<bool>> is_told_ = std::make_shared<std::atomic<bool>>(false);
    std::atomic<bool> has_refusal_{false}; // last_ is a refusal
};

} // namespace qccl
