// Groups the calls of all logs by shape and corrects the nodes' clocks.
#include "trace/call_log.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace qccl {

namespace {

// Adds with saturation: the times of a damaged file may be any distance apart.
int64_t sum_of(int64_t a, int64_t b) {
    int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return a < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

int64_t start_of(const CallLog &log, const LoggedCall &call) {
    return log.head.epoch_ns + call.start_ns;
}
int64_t end_of(const CallLog &log, const LoggedCall &call) {
    return start_of(log, call) + call.duration_ns;
}

// Equal on all ranks of the communicator that made the call.
using CallKey = std::pair<uint64_t, uint64_t>;
CallKey key_of(const CallLog &log, const LoggedCall &call) {
    return {log.comms[call.comm - 1].session, call.number};
}

bool needs_all_ranks(const LoggedShape &shape) {
    const CollectiveRow &row = row_of(shape.collective);
    return row.is_scheduled && row.needs_all_ranks && (shape.count != 0 || !row.has_values);
}

// The times of one node's ranks in one call.
struct NodeTimes {
    int64_t latest_start = std::numeric_limits<int64_t>::min();
    int64_t earliest_end = std::numeric_limits<int64_t>::max();
};
using CallTimes = std::map<CallKey, NodeTimes>;

CallTimes times_of(std::span<const CallLog> logs, const std::string &host) {
    CallTimes times;
    for (const CallLog &log : logs) {
        if (log.head.host != host) continue;
        for (const LoggedCall &call : log.calls) {
            if (call.has_failed || !needs_all_ranks(log.shapes[call.shape - 1])) continue;
            NodeTimes &node = times[key_of(log, call)];
            node.latest_start = std::max(node.latest_start, start_of(log, call));
            node.earliest_end = std::min(node.earliest_end, end_of(log, call));
        }
    }
    return times;
}

// Returns the shift to add to the times of `other`.
int64_t shift_between(const CallTimes &reference, const CallTimes &other) {
    int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
    for (const auto &[key, theirs] : other) {
        const auto found = reference.find(key);
        if (found == reference.end()) continue;
        least = std::max(least, found->second.latest_start - theirs.earliest_end);
        most = std::min(most, found->second.earliest_end - theirs.latest_start);
    }
    if (least <= 0 && most >= 0) return 0;
    return least / 2 + most / 2;
}

// A call as the logs of all ranks describe it.
struct MadeCall {
    const LoggedShape *shape = nullptr;
    const LoggedComm *comm = nullptr;
    int64_t first_start = 0, last_start = 0;
    uint32_t last_rank = 0;
    uint32_t rows = 0;
    bool has_failed = false;
};

auto words_of(const LoggedShape &shape) {
    return std::tie(shape.collective, shape.type, shape.op, shape.root, shape.count, shape.codec,
                    shape.inner_codec, shape.algorithm);
}

// Communicators that were made alike count as one: a job may make and destroy one in every step.
std::string describe(const LoggedComm &comm) {
    std::string text = comm.name.empty() ? comm.origin : comm.name;
    return text + ", " + std::to_string(comm.ranks()) + (comm.ranks() == 1 ? " rank" : " ranks");
}

struct ShapeGroup {
    ShapeSummary summary;
    std::vector<int64_t> durations, skews;
    std::map<uint32_t, uint64_t> last;
};

struct ComesBefore {
    using Key = std::pair<std::string, const LoggedShape *>;
    bool operator()(const Key &a, const Key &b) const {
        return a.first != b.first ? a.first < b.first : words_of(*a.second) < words_of(*b.second);
    }
};
using Groups = std::map<ComesBefore::Key, ShapeGroup, ComesBefore>;

int64_t median(std::vector<int64_t> &values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

RankSummary summarize(const CallLog &log, int64_t shift) {
    RankSummary rank{.head = log.head,
                     .calls = log.calls.size(),
                     .lost = log.lost,
                     .clock_shift_ns = shift,
                     .has_ended = log.has_ended,
                     .is_cut = log.is_cut};
    if (log.calls.empty()) return rank;
    int64_t first = std::numeric_limits<int64_t>::max(), last = 0;
    for (const LoggedCall &call : log.calls) {
        rank.failed += call.has_failed;
        rank.call_ns = sum_of(rank.call_ns, call.duration_ns);
        first = std::min(first, call.start_ns);
        last = std::max(last, call.start_ns + call.duration_ns);
    }
    rank.span_ns = last - first;
    return rank;
}

std::map<CallKey, MadeCall> calls_of(std::span<const CallLog> logs,
                                     const std::vector<int64_t> &shifts) {
    std::map<CallKey, MadeCall> made;
    for (size_t i = 0; i < logs.size(); i++)
        for (const LoggedCall &call : logs[i].calls) {
            const LoggedComm &comm = logs[i].comms[call.comm - 1];
            const int64_t start = sum_of(start_of(logs[i], call), shifts[i]);
            MadeCall &all = made[key_of(logs[i], call)];
            if (all.rows == 0 || comm.rank < all.comm->rank) {
                all.shape = &logs[i].shapes[call.shape - 1];
                all.comm = &comm;
            }
            if (all.rows == 0 || start < all.first_start) all.first_start = start;
            if (all.rows == 0 || start > all.last_start) {
                all.last_start = start;
                all.last_rank = comm.rank;
            }
            all.has_failed = all.has_failed || call.has_failed;
            all.rows++;
        }
    return made;
}

void finish(ShapeGroup &group) {
    ShapeSummary &summary = group.summary;
    const auto [shortest, longest] =
        std::minmax_element(group.durations.begin(), group.durations.end());
    summary.shortest_ns = *shortest;
    summary.longest_ns = *longest;
    summary.median_ns = median(group.durations);
    if (!group.skews.empty())
        summary.longest_skew_ns = *std::max_element(group.skews.begin(), group.skews.end());
    summary.median_skew_ns = median(group.skews);
    for (const auto &[rank, times] : group.last) {
        if (times <= summary.times_last) continue;
        summary.last_rank = rank;
        summary.times_last = times;
    }
}

} // namespace

std::vector<int64_t> clock_shifts(std::span<const CallLog> logs) {
    std::map<std::string, int64_t> by_host;
    std::optional<CallTimes> reference;
    for (const CallLog &log : logs) {
        const std::string &host = log.head.host;
        if (by_host.contains(host)) continue;
        CallTimes times = times_of(logs, host);
        by_host[host] = reference ? shift_between(*reference, times) : 0;
        if (!reference) reference = std::move(times);
    }
    std::vector<int64_t> shifts;
    for (const CallLog &log : logs) shifts.push_back(by_host[log.head.host]);
    return shifts;
}

CallSummary summarize(std::span<const CallLog> logs) {
    const std::vector<int64_t> shifts = clock_shifts(logs);
    const std::map<CallKey, MadeCall> made = calls_of(logs, shifts);
    CallSummary summary;
    Groups groups;
    const auto group_of = [&](const MadeCall &call) -> ShapeGroup & {
        return groups[{describe(*call.comm), call.shape}];
    };
    for (const auto &[key, call] : made) {
        ShapeGroup &group = group_of(call);
        ShapeSummary &shape = group.summary;
        if (shape.calls++ == 0) {
            shape.shape = *call.shape;
            shape.comm = describe(*call.comm);
        }
        shape.failed += call.has_failed;
        shape.bytes += static_cast<double>(call.shape->bytes);
        if (call.rows < 2) continue;
        group.skews.push_back(sum_of(call.last_start, -call.first_start));
        group.last[call.last_rank]++;
    }
    for (size_t i = 0; i < logs.size(); i++) {
        summary.ranks.push_back(summarize(logs[i], shifts[i]));
        for (const LoggedCall &call : logs[i].calls)
            group_of(made.at(key_of(logs[i], call))).durations.push_back(call.duration_ns);
    }
    for (auto &[key, group] : groups) {
        finish(group);
        summary.shapes.push_back(std::move(group.summary));
    }
    const auto time_of = [](const ShapeSummary &shape) {
        return static_cast<double>(shape.median_ns) * static_cast<double>(shape.calls);
    };
    std::stable_sort(
        summary.shapes.begin(), summary.shapes.end(),
        [&](const ShapeSummary &a, const ShapeSummary &b) { return time_of(a) > time_of(b); });
    return summary;
}

} // namespace qccl
