// Implements recorded_job.hpp: matches the calls of all logs by session and number.
#include "perf/recorded_job.hpp"

#include <algorithm>
#include <cinttypes>
#include <map>
#include <optional>
#include <tuple>

namespace qccl::perf {

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
            return Error::make(Code::invalid_argument,
                               "no call is whole in the logs of all its ranks");
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
                return Error::make(Code::invalid_argument,
                                   "these are logs of several jobs: of %016" PRIx64
                                   " and of %016" PRIx64,
                                   first->session, comm.session);
        }
        if (!first) return Error::make(Code::invalid_argument, "the logs hold no communicator");
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
                return Error::make(Code::invalid_argument,
                                   "logs disagree how many ranks communicator %016" PRIx64
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
            return Error::make(Code::invalid_argument,
                               "ranks %" PRIu32 " and %" PRIu32
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
                return Error::make(Code::invalid_argument,
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
        const bool waits_for_one = found.shape->collective == Collective::broadcast;
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
    if (logs.empty()) return Error::make(Code::invalid_argument, "there is no log");
    return Assembler(logs).run();
}

} // namespace qccl::perf
