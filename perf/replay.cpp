// Implements replay.hpp: advances the ranks from call to call and completes a call when all its
// ranks have arrived.
#include "perf/replay.hpp"

#include <algorithm>
#include <deque>
#include <limits>

namespace qccl::perf {

namespace {

class Replay {
public:
    Replay(const RecordedJob &job, std::span<const CallTimes> times)
        : job_(job), times_(times), waiting_(job.calls.size()) {
        for (uint32_t log = 0; log < job.logs.size(); log++) {
            const auto &parts = job.logs[log].parts;
            ranks_.push_back({std::deque<RecordedJob::Part>(parts.begin(), parts.end())});
        }
    }

    ReplayedTimes run() {
        for (uint32_t log = 0; log < ranks_.size(); log++) arrive(log);
        while (true) {
            while (!ready_.empty()) {
                const uint32_t call = ready_.front();
                ready_.pop_front();
                finish(call);
            }
            if (!separate()) break;
        }
        ReplayedTimes sum;
        for (const Rank &rank : ranks_) {
            sum.time_ns = std::max(sum.time_ns, rank.now_ns);
            sum.in_calls_ns = std::max(sum.in_calls_ns, rank.in_calls_ns);
        }
        return sum;
    }

private:
    struct Rank {
        std::deque<RecordedJob::Part> left{};
        double now_ns = 0, in_calls_ns = 0;
    };
    struct RankArrival {
        uint32_t log = 0;
        double ns = 0;
        bool is_early = false; // the rank is still waiting in another call
    };

    // Lets the rank compute and arrive at its next call.
    void arrive(uint32_t log) {
        Rank &rank = ranks_[log];
        if (rank.left.empty()) return;
        const RecordedJob::Part part = rank.left.front();
        rank.left.pop_front();
        rank.now_ns += static_cast<double>(part.computed_ns);
        std::vector<RankArrival> &arrived = waiting_[part.call];
        arrived.push_back({log, rank.now_ns});
        if (arrived.size() == job_.calls[part.call].ranks) ready_.push_back(part.call);
    }

    // Ranks may have made calls on two communicators in different orders, so that each waits in a
    // call that the other has still ahead. This function lets ranks arrive early at such a call.
    // Returns true if a call is now ready.
    bool separate() {
        for (uint32_t call = 0; call < waiting_.size(); call++) {
            if (waiting_[call].empty()) continue;
            for (uint32_t log = 0; log < ranks_.size(); log++) {
                auto &left = ranks_[log].left;
                const auto at = std::ranges::find(left, call, &RecordedJob::Part::call);
                if (at == left.end()) continue;
                waiting_[call].push_back({log, ranks_[log].now_ns, true});
                left.erase(at);
            }
            if (waiting_[call].size() != job_.calls[call].ranks) continue;
            ready_.push_back(call);
            return true;
        }
        return false;
    }

    uint32_t rank_in(const RecordedComm &comm, uint32_t log) const {
        const auto at = std::ranges::find(comm.members, job_.logs[log].rank);
        return static_cast<uint32_t>(at - comm.members.begin());
    }

    void finish(uint32_t call) {
        const RecordedShape &shape = job_.shapes[job_.calls[call].shape];
        const CallTimes &times = times_[job_.calls[call].shape];
        const RecordedComm &comm = job_.comms[shape.comm];
        const bool has_root = shape.shape.collective == Collective::broadcast;
        const std::vector<RankArrival> arrivals = std::move(waiting_[call]);
        waiting_[call].clear();
        double latest = -std::numeric_limits<double>::infinity(), of_root = latest;
        for (const RankArrival &arrival : arrivals) {
            latest = std::max(latest, arrival.ns);
            if (has_root && rank_in(comm, arrival.log) == shape.shape.root) of_root = arrival.ns;
        }
        // A root without a log is never late.
        if (of_root < 0) of_root = latest;
        for (const RankArrival &arrival : arrivals) {
            const uint32_t rank = rank_in(comm, arrival.log);
            Rank &own = ranks_[arrival.log];
            const double end =
                std::max(of_root + times.finish_ns[rank], arrival.ns + times.busy_ns[rank]);
            own.in_calls_ns += end - arrival.ns;
            own.now_ns = std::max(own.now_ns, end);
        }
        for (const RankArrival &arrival : arrivals)
            if (!arrival.is_early) arrive(arrival.log);
    }

    const RecordedJob &job_;
    const std::span<const CallTimes> times_;
    std::vector<Rank> ranks_;
    std::vector<std::vector<RankArrival>> waiting_; // by call
    std::deque<uint32_t> ready_;
};

} // namespace

ReplayedTimes replay(const RecordedJob &job, std::span<const CallTimes> times) {
    return Replay(job, times).run();
}

} // namespace qccl::perf
