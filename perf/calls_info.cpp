// Implements qccl-info calls: reads the logs of calls and prints a line for each rank and for each
// kind of call.
#include "perf/calls_info.hpp"

#include "perf/number_text.hpp"
#include "perf/text_file.hpp"
#include "record/call_summary.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <set>

namespace qccl::perf {

namespace {

// Returns a text such as "12.3 us".
std::string time_text(int64_t ns) {
    const auto time = static_cast<double>(ns);
    char text[32];
    if (ns < 1'000'000)
        std::snprintf(text, sizeof text, "%.1f us", time * 1e-3);
    else if (ns < 1'000'000'000)
        std::snprintf(text, sizeof text, "%.2f ms", time * 1e-6);
    else
        std::snprintf(text, sizeof text, "%.2f s", time * 1e-9);
    return text;
}

// The first communicator in each log of a job is the same one, so its session identifies the job.
void print_missing(const std::vector<CallLog> &logs) {
    std::map<uint64_t, std::pair<std::set<uint32_t>, uint32_t>> jobs;
    for (const CallLog &log : logs) {
        if (log.comms.empty()) continue;
        auto &[ranks, size] = jobs[log.comms.front().session];
        ranks.insert(log.comms.front().rank);
        size = log.comms.front().ranks();
    }
    for (const auto &[session, job] : jobs)
        if (job.first.size() < job.second)
            std::printf("Files of %zu of %" PRIu32 " ranks are missing.\n",
                        job.second - job.first.size(), job.second);
}

void print_rank(const RankSummary &rank) {
    const double share = rank.span_ns == 0 ? 0
                                           : 100 * static_cast<double>(rank.call_ns) /
                                                 static_cast<double>(rank.span_ns);
    std::printf("rank %" PRIu32 " of %" PRIu32 " on %s, process %" PRId64 ": %" PRIu64
                " calls in %s, %.1f %% of it in calls",
                rank.head.rank, rank.head.ranks, rank.head.host.c_str(), rank.head.pid, rank.calls,
                time_text(rank.span_ns).c_str(), share);
    if (rank.failed != 0) std::printf("; %" PRIu64 " failed", rank.failed);
    if (rank.lost != 0) std::printf("; %" PRIu64 " more are not recorded", rank.lost);
    if (rank.clock_shift_ns != 0)
        std::printf("; its clock is %s %s", time_text(std::abs(rank.clock_shift_ns)).c_str(),
                    rank.clock_shift_ns > 0 ? "behind" : "ahead");
    if (!rank.has_ended)
        std::printf("; the job %s", rank.is_cut ? "was killed, and the last row is not whole"
                                                : "was killed or goes on");
    std::printf("\n");
}

std::string shape_text(const LoggedShape &shape) {
    std::string text = name(shape.collective);
    if (shape.collective == Collective::barrier) return text;
    text.append(" ").append(std::to_string(shape.count)).append(" ").append(name(shape.type));
    if (reduces(shape.collective)) text.append(" ").append(name(shape.op));
    if (shape.collective == Collective::broadcast)
        text.append(" root ").append(std::to_string(shape.root));
    return text.append(", ").append(shape.codec).append(", ").append(shape.algorithm);
}

void print_shape(const ShapeSummary &shape) {
    std::printf("%8" PRIu64 " %12s %10s %10s %10s %10s %10s  ", shape.calls,
                memory_text(shape.bytes).c_str(), time_text(shape.shortest_ns).c_str(),
                time_text(shape.median_ns).c_str(), time_text(shape.longest_ns).c_str(),
                time_text(shape.median_skew_ns).c_str(), time_text(shape.longest_skew_ns).c_str());
    if (shape.times_last == 0)
        std::printf("%18s", "-");
    else
        std::printf("%4" PRIu32 " (%3.0f %% of them)", shape.last_rank,
                    100 * static_cast<double>(shape.times_last) / static_cast<double>(shape.calls));
    std::printf("  %s (%s)\n", shape_text(shape.shape).c_str(), shape.comm.c_str());
}

} // namespace

Result<std::vector<CallLog>> read_call_logs(const std::vector<std::string> &files) {
    std::vector<CallLog> logs;
    std::map<std::pair<uint64_t, uint32_t>, std::string> seen; // by session and rank
    for (const std::string &file : files) {
        QCCL_TRY(const std::string text, read_text(file, file));
        auto log = parse_call_log(text);
        if (!log)
            return Error::make(log.error().code, "%.200s: %.250s", file.c_str(), log.error().text);
        for (const LoggedComm &comm : log->comms) {
            const auto [other, is_new] = seen.try_emplace({comm.session, comm.rank}, file);
            if (is_new) continue;
            return Error::make(Code::invalid_argument,
                               "%.150s and %.150s both hold rank %" PRIu32 " of one communicator",
                               other->second.c_str(), file.c_str(), comm.rank);
        }
        logs.push_back(std::move(*log));
    }
    return logs;
}

Done print_calls(const std::vector<std::string> &files) {
    QCCL_TRY(const std::vector<CallLog> logs, read_call_logs(files));
    const CallSummary summary = summarize(logs);
    for (const RankSummary &rank : summary.ranks) print_rank(rank);
    print_missing(logs);
    std::printf("\n%8s %12s %10s %10s %10s %10s %10s  %18s  %s\n", "calls", "bytes", "shortest",
                "median", "longest", "skew", "most skew", "last rank", "call (communicator)");
    for (const ShapeSummary &shape : summary.shapes) print_shape(shape);
    return {};
}

} // namespace qccl::perf
