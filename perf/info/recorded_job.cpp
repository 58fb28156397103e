// Implements the logs, the job and the replay of recorded_job.hpp: prints a line for each rank and
// for each kind of call, matches the calls of all logs by session and number, and advances the
// ranks from call to call; a call is complete when all its ranks have arrived.
#include "perf/info/recorded_job.hpp"

#include "perf/report/tool_files.hpp"
#include "trace/call_log.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

namespace qccl::perf {

// ---- qccl-info calls

namespace {

// Returns a text such as "12.3 us".
std::string log_time_text(int64_t ns) {
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
                log_time_text(rank.span_ns).c_str(), share);
    if (rank.failed != 0) std::printf("; %" PRIu64 " failed", rank.failed);
    if (rank.lost != 0) std::printf("; %" PRIu64 " more are not recorded", rank.lost);
    if (rank.clock_shift_ns != 0)
        std::printf("; its clock is %s %s", log_time_text(std::abs(rank.clock_shift_ns)).c_str(),
                    rank.clock_shift_ns > 0 ? "behind" : "ahead");
    if (!rank.has_ended)
        std::printf("; the job %s", rank.is_cut ? "was killed, and the last row is not whole"
                                                : "was killed or goes on");
    std::printf("\n");
}

std::string shape_text(const LoggedShape &shape) {
    std::string text = name(shape.collective);
    if (!row_of(shape.collective).has_values) return text;
    text.append(" ").append(std::to_string(shape.count)).append(" ").append(name(shape.type));
    if (reduces(shape.collective)) text.append(" ").append(name(shape.op));
    if (row_of(shape.collective).has_root) text.append(" root ").append(std::to_string(shape.root));
    return text.append(", ").append(shape.codec).append(", ").append(shape.algorithm);
}

void print_shape(const ShapeSummary &shape) {
    std::printf("%8" PRIu64 " %12s %10s %10s %10s %10s %10s  ", shape.calls,
                memory_text(shape.bytes).c_str(), log_time_text(shape.shortest_ns).c_str(),
                log_time_text(shape.median_ns).c_str(), log_time_text(shape.longest_ns).c_str(),
                log_time_text(shape.median_skew_ns).c_str(),
                log_time_text(shape.longest_skew_ns).c_str());
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
        if (text.empty()) {
            std::fprintf(
                stderr,
                "qccl-info: %s: empty and left out; its rank ended as it created the file\n",
                file.c_str());
            continue;
        }
        auto log = parse_call_log(text);
        if (!log)
            return Error::make(log.error().code, "%.200s: %.250s", file.c_str(), log.error().text);
        for (const LoggedComm &comm : log->comms) {
            const auto [other, is_new] = seen.try_emplace({comm.session, comm.rank}, file);
            if (is_new) continue;
            return invalid_argument("%.150s and %.150s both hold rank %" PRIu32
                                    " of one communicator",
                                    other->second.c_str(), file.c_str(), comm.rank);
        }
        logs.push_back(std::move(*log));
    }
    if (logs.empty()) return Error::make(Code::damaged_data, "no file holds a record of calls");
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

// ---- The recorded job

namespace {

using CallKey = std::pair<uint64_t, uint64_t>; // session, number

// A call whose parts are being collected.
struct Found {
    const LoggedShape *shape = nullptr; // from the first log with this call
    uint32_t first_rank = 0;            // that log's rank in the communicator
    std::vector<const LoggedCall *> parts;
    bool has_failed = false;
};

bool are_alike(const LoggedShape &a, const LoggedShape &b) {
    const auto of = [](const LoggedShape &shape) {
        return std::tuple(shape.collective, shape.type, shape.op, shape.root, shape.count);
    };
    return of(a) == of(b);
}

class Assembler {
public:
    explicit Assembler(std::span<const CallLog> logs) : logs_(logs) {}

    Result<RecordedJob> run() {
        QCCL_TRY(take_job());
        for (const CallLog &log : logs_) QCCL_TRY(take_log(log));
        for (uint32_t i = 0; i < job_.comms.size(); i++) QCCL_TRY(check_members(i));
        QCCL_TRY(number_calls());
        for (const CallLog &log : logs_) add_rank(log);
        if (job_.calls.empty())
            return invalid_argument("no call is whole in the logs of all its ranks");
        std::ranges::sort(job_.logs, {}, &RecordedJob::Rank::rank);
        return std::move(job_);
    }

private:
    Done take_job() {
        const LoggedComm *first = nullptr;
        for (const CallLog &log : logs_) {
            if (log.comms.empty()) continue;
            const LoggedComm &comm = log.comms.front();
            if (!first) first = &comm;
            if (comm.session != first->session)
                return invalid_argument("these are logs of several jobs: of %016" PRIx64
                                        " and of %016" PRIx64,
                                        first->session, comm.session);
        }
        if (!first) return invalid_argument("the logs hold no communicator");
        job_.ranks = first->ranks();
        job_.node = first->node;
        job_.ranks_per_core = first->ranks_per_core;
        return {};
    }

    Done take_log(const CallLog &log) {
        job_.left_out += log.lost;
        if (log.comms.empty()) return {};
        const uint32_t rank = log.comms.front().rank;
        for (const LoggedComm &comm : log.comms) {
            const uint32_t number = number_of(comm);
            RecordedComm &known = job_.comms[number];
            if (known.members.size() != comm.ranks())
                return invalid_argument("logs disagree how many ranks communicator %016" PRIx64
                                        " has: %zu or %" PRIu32,
                                        comm.session, known.members.size(), comm.ranks());
            known.members[comm.rank] = rank;
            logs_of_[number]++;
        }
        for (const LoggedCall &call : log.calls) QCCL_TRY(take_call(log, call));
        return {};
    }

    uint32_t number_of(const LoggedComm &comm) {
        const auto [at, is_new] =
            comm_of_.emplace(comm.session, static_cast<uint32_t>(job_.comms.size()));
        if (is_new) {
            job_.comms.push_back(
                {comm.name, std::vector<uint32_t>(comm.ranks(), RecordedJob::unknown_rank)});
            logs_of_.push_back(0);
        }
        return at->second;
    }

    Done take_call(const CallLog &log, const LoggedCall &call) {
        const LoggedComm &comm = log.comms[call.comm - 1];
        const LoggedShape &shape = log.shapes[call.shape - 1];
        Found &found = found_[{comm.session, call.number}];
        if (!found.shape) {
            found.shape = &shape;
            found.first_rank = comm.rank;
        } else if (!are_alike(*found.shape, shape)) {
            return invalid_argument("ranks %" PRIu32 " and %" PRIu32
                                    " recorded different calls as number %" PRIu64
                                    " of one communicator",
                                    found.first_rank, comm.rank, call.number);
        }
        found.has_failed = found.has_failed || call.has_failed;
        found.parts.push_back(&call);
        return {};
    }

    // Checks that the members of a communicator are known. The job's first communicator has all
    // ranks in order, so missing logs do not matter there.
    Done check_members(uint32_t number) {
        std::vector<uint32_t> &members = job_.comms[number].members;
        for (uint32_t rank = 0; rank < members.size(); rank++) {
            if (members[rank] != RecordedJob::unknown_rank) continue;
            if (number != comm_of_.at(logs_.front().comms.empty()
                                          ? comm_of_.begin()->first
                                          : logs_.front().comms.front().session))
                return invalid_argument(
                    "rank %" PRIu32 " of a communicator of %zu ranks has no log "
                    "here, so that its place is unknown: give the logs of all ranks",
                    rank, members.size());
        }
        return {};
    }

    bool is_whole(const CallKey &key, const Found &found) const {
        return !found.has_failed && found.parts.size() == logs_of_[comm_of_.at(key.first)];
    }

    Done number_calls() {
        std::map<std::tuple<uint32_t, Collective, DataType, RedOp, uint32_t, uint64_t, std::string,
                            std::string>,
                 uint32_t>
            known;
        std::vector<std::vector<double>> times;
        for (auto &[key, found] : found_) {
            if (!is_whole(key, found)) {
                job_.left_out++;
                continue;
            }
            const LoggedShape &shape = *found.shape;
            const uint32_t comm = comm_of_.at(key.first);
            const auto [at, is_new] =
                known.emplace(std::tuple(comm, shape.collective, shape.type, shape.op, shape.root,
                                         shape.count, shape.codec, shape.algorithm),
                              static_cast<uint32_t>(job_.shapes.size()));
            if (is_new) {
                job_.shapes.push_back({.comm = comm, .shape = shape});
                times.emplace_back();
            }
            job_.shapes[at->second].calls++;
            times[at->second].push_back(time_of(found));
            call_of_[key] = static_cast<uint32_t>(job_.calls.size());
            job_.calls.push_back({at->second, static_cast<uint32_t>(found.parts.size())});
        }
        for (size_t i = 0; i < times.size(); i++) {
            const auto middle = times[i].begin() + static_cast<ptrdiff_t>(times[i].size() / 2);
            std::nth_element(times[i].begin(), middle, times[i].end());
            job_.shapes[i].recorded_ns = *middle;
        }
        return {};
    }

    static double time_of(const Found &found) {
        const auto [least, most] = std::ranges::minmax(
            found.parts, {}, [](const LoggedCall *part) { return part->duration_ns; });
        const bool waits_for_one = !row_of(found.shape->collective).needs_all_ranks;
        return static_cast<double>((waits_for_one ? most : least)->duration_ns);
    }

    void add_rank(const CallLog &log) {
        if (log.comms.empty()) return;
        std::vector<const LoggedCall *> calls;
        for (const LoggedCall &call : log.calls) calls.push_back(&call);
        std::ranges::stable_sort(calls, {}, [](const LoggedCall *call) { return call->start_ns; });
        RecordedJob::Rank rank{.rank = log.comms.front().rank};
        std::optional<int64_t> end;
        int64_t begin = 0;
        for (const LoggedCall *call : calls) {
            const LoggedComm &comm = log.comms[call->comm - 1];
            const auto at = call_of_.find({comm.session, call->number});
            // The time of calls that are left out counts as computation.
            if (at == call_of_.end()) continue;
            if (!end) begin = call->start_ns;
            const int64_t computed = end ? std::max<int64_t>(0, call->start_ns - *end) : 0;
            rank.parts.push_back({at->second, computed, call->duration_ns});
            end = std::max(end.value_or(0), call->start_ns + call->duration_ns);
            RecordedShape &shape = job_.shapes[job_.calls[at->second].shape];
            shape.shape.wire_bytes =
                std::max(shape.shape.wire_bytes, log.shapes[call->shape - 1].wire_bytes);
        }
        rank.span_ns = end.value_or(0) - begin;
        job_.logs.push_back(std::move(rank));
    }

    const std::span<const CallLog> logs_;
    RecordedJob job_;
    std::map<uint64_t, uint32_t> comm_of_; // by session
    std::vector<uint32_t> logs_of_;        // by communicator
    std::map<CallKey, Found> found_;
    std::map<CallKey, uint32_t> call_of_;
};

} // namespace

double RecordedJob::recorded_ns() const {
    int64_t most = 0;
    for (const Rank &rank : logs) most = std::max(most, rank.span_ns);
    return static_cast<double>(most);
}

Result<RecordedJob> put_together(std::span<const CallLog> logs) {
    if (logs.empty()) return invalid_argument("there is no log");
    return Assembler(logs).run();
}

// ---- Replay

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
        const CollectiveRow &row = row_of(shape.shape.collective);
        const std::vector<RankArrival> arrivals = std::move(waiting_[call]);
        waiting_[call].clear();
        double latest = -std::numeric_limits<double>::infinity(), of_root = latest;
        for (const RankArrival &arrival : arrivals) {
            latest = std::max(latest, arrival.ns);
            if (rank_in(comm, arrival.log) == shape.shape.root) of_root = arrival.ns;
        }
        // A root without a log is never late.
        if (of_root < 0) of_root = latest;
        // Ranks wait for the root alone where it has all values. Where it gets all values, it alone
        // waits for the others.
        const auto begin_of = [&](uint32_t rank, double arrived) {
            if (row.has_one_source) return of_root;
            return row.has_one_result && rank != shape.shape.root ? arrived : latest;
        };
        for (const RankArrival &arrival : arrivals) {
            const uint32_t rank = rank_in(comm, arrival.log);
            Rank &own = ranks_[arrival.log];
            const double end = std::max(begin_of(rank, arrival.ns) + times.finish_ns[rank],
                                        arrival.ns + times.busy_ns[rank]);
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
