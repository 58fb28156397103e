// A barrier that says which ranks have not come. It goes through the store and leaves the
// communicator as it is, so a program may call it when a collective hangs.
//
// Blocks the calling thread until all ranks have come or the timeout is over.
#include "argument_checks.hpp"
#include "backend_resources.hpp"
#include "torch_backend.hpp"

namespace qccl_torch {

namespace {

using Clock = std::chrono::steady_clock;

std::string list_of(const std::vector<int> &ranks) {
    std::string text;
    for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
}

struct MonitoredBarrier {
    GroupStore &store;
    std::string prefix; // of this barrier's keys
    int rank, size;
    Milliseconds limit;
    Clock::time_point deadline;

    std::string arrival_of(int other) const { return prefix + "/" + std::to_string(other); }
    std::string outcome() const { return prefix + "/outcome"; }

    // Other ranks learn the outcome from rank 0.
    void wait_for_rank_0() const {
        store.set(arrival_of(rank), "1");
        const bool has_come = store.await_key(outcome(), deadline, [] {});
        const std::string missing = has_come ? store.get(outcome()) : "";
        TORCH_CHECK(has_come && missing.empty(), "Rank ", rank,
                    " successfully reached monitoredBarrier, but received errors while waiting for "
                    "send/recv from rank 0. ",
                    has_come ? "Rank 0 reports: " + missing
                             : "Rank 0 has not passed the barrier in " +
                                   std::to_string(limit.count()) + " ms");
    }

    void wait_for_others(bool waits_for_all_ranks) const {
        TORCH_CHECK(limit.count() > 0, "Rank 0 timed out in monitoredBarrier after ", limit.count(),
                    " ms");
        std::vector<int> missing;
        for (int other = 1; other < size; other++) {
            if (!store.await_key(arrival_of(other), deadline, [] {})) missing.push_back(other);
            if (!missing.empty() && !waits_for_all_ranks) break;
        }
        std::string text;
        if (!missing.empty())
            text = (missing.size() == 1 ? "Rank " : "Ranks ") + list_of(missing) +
                   " failed to pass monitoredBarrier in " + std::to_string(limit.count()) + " ms";
        store.set(outcome(), text);
        TORCH_CHECK(missing.empty(), text);
        for (int other = 1; other < size; other++) store.remove(arrival_of(other));
    }
};

} // namespace

void QcclBackend::monitoredBarrier(const c10d::BarrierOptions &opts, bool waits_for_all_ranks) {
    check_usable();
    const Milliseconds limit =
        opts.timeout == c10d::kUnsetTimeout ? Milliseconds(limit_ms_) : Milliseconds(opts.timeout);
    const int64_t number = ++resources_->monitored_barriers;
    const MonitoredBarrier barrier{.store = *resources_->store,
                                   .prefix = resources_->store_prefix + "/monitored_barrier/" +
                                             std::to_string(number),
                                   .rank = rank_,
                                   .size = size_,
                                   .limit = limit,
                                   .deadline = Clock::now() + limit};
    if (rank_ == 0)
        barrier.wait_for_others(waits_for_all_ranks);
    else
        barrier.wait_for_rank_0();
}

} // namespace qccl_torch
