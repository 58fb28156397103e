// qcclCommShrink. The ranks agree on the survivors, create a communicator, and agree on whether all
// of them have it. If one of them is gone by then, they begin again. The function blocks until the
// survivors have joined, unless the config of the new communicator is nonblocking.

#include "api/call/child_comm.hpp"
#include "api/call/entry.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <vector>

namespace qccl {

namespace {

// The subject of an agreement.
enum class ShrinkPhase : uint32_t { survivors = 1, outcome = 2 };

// In a vote: the voter's result, and the ranks that it excludes. In a decision: the result of all
// ranks, the rank at fault, and the survivors.
struct ShrinkVote {
    ShrinkPhase phase{};
    Code code = Code::success;
    int32_t rank = Error::no_rank;
    std::vector<uint32_t> ranks{}; // ascending
};

SurvivorExchange::Bytes to_bytes(const ShrinkVote &vote) {
    std::vector<uint32_t> numbers{static_cast<uint32_t>(vote.phase),
                                  static_cast<uint32_t>(vote.code),
                                  static_cast<uint32_t>(vote.rank)};
    for (const uint32_t rank : vote.ranks) {
        numbers.resize(std::max<size_t>(numbers.size(), 4 + rank / 32));
        numbers[3 + rank / 32] |= uint32_t{1} << rank % 32;
    }
    const auto bytes = std::as_bytes(std::span(numbers));
    return {bytes.begin(), bytes.end()};
}

// The bytes are another rank's and may hold anything. Missing bytes count as zeros.
ShrinkVote to_vote(const SurvivorExchange::Bytes &bytes, uint32_t size) {
    std::vector<uint32_t> numbers(3 + (size + 31) / 32);
    std::memcpy(numbers.data(), bytes.data(),
                std::min(bytes.size(), numbers.size() * sizeof numbers[0]));
    ShrinkVote vote{.phase = static_cast<ShrinkPhase>(numbers[0]),
                    .code = static_cast<Code>(numbers[1]),
                    .rank = static_cast<int32_t>(numbers[2])};
    for (uint32_t rank = 0; rank < size; rank++)
        if ((numbers[3 + rank / 32] >> rank % 32 & 1) != 0) vote.ranks.push_back(rank);
    return vote;
}

bool has(const std::vector<uint32_t> &ranks, uint32_t rank) {
    return std::binary_search(ranks.begin(), ranks.end(), rank);
}

class Shrinking {
public:
    // `task`: the one that shrinks; null: none does.
    Shrinking(Comm &parent, std::vector<uint32_t> excluded, const ChildSettings &settings,
              const CommTask *task)
        : parent_(parent), settings_(settings),
          excluded_(std::move(excluded)), voters_{everyone(task)} {}

    Result<std::shared_ptr<Comm>> run() {
        for (;;) {
            QCCL_TRY(const std::vector<uint32_t> survivors, find_survivors());
            MemberGroup group{.topic = 2 * survivor_exchange().agreements() +
                                       1, // odd; those of splits are even
                              .members = survivors,
                              .timeout = voters_.timeout,
                              .what = voters_.what,
                              .is_called_off = voters_.is_called_off,
                              .cancel_check = voters_.cancel_check,
                              .is_apart = true};
            auto made = exception_boundary([&] {
                return create_child(parent_, group, settings_.comm_config, settings_.env_settings,
                                    {.how = "shrink"});
            });
            QCCL_TRY(const ShrinkVote end, settle(outcome(made), survivors));
            if (end.code == Code::success || (end.code == Code::remote_error && !made)) return made;
            if (end.code == Code::remote_error)
                return Error::make(Code::remote_error,
                                   "rank %" PRId32 " could not make the new communicator", end.rank)
                    .at_rank(end.rank);
            parent_.parts().log->info(
                "qcclCommShrink: rank %" PRId32 " is gone, too: the others begin again", end.rank);
        }
    }

private:
    SurvivorExchange &survivor_exchange() { return parent_.parts().transport->survivor_exchange(); }
    MemberGroup everyone(const CommTask *task) const;
    Result<ShrinkVote>
    agree(const ShrinkVote &mine,
          const std::function<ShrinkVote(const std::vector<SurvivorExchange::Proposal> &)> &decide);
    Done validate(const ShrinkVote &mine, const SurvivorExchange::Proposal &vote) const;
    Result<std::vector<uint32_t>> find_survivors();
    // The decision's code is success, in_progress (begin again, because a rank is gone) or
    // remote_error (a rank could not make the communicator).
    Result<ShrinkVote> settle(const Done &mine, const std::vector<uint32_t> &survivors);

    Comm &parent_;
    const ChildSettings &settings_;
    const std::vector<uint32_t> excluded_; // ascending
    const MemberGroup voters_;
};

// All ranks except those that are excluded by name, which do not vote either.
MemberGroup Shrinking::everyone(const CommTask *task) const {
    MemberGroup all{.timeout = timeout_of(parent_, settings_.comm_config),
                    .what = "qcclCommShrink",
                    .is_failure_known = parent_.is_failure_known()};
    all.is_called_off = [&parent = parent_] { return parent.is_closed(); };
    all.cancel_check = cancel_check_of(task, parent_.rank(), all.what);
    for (uint32_t rank = 0; rank < parent_.size(); rank++)
        if (!has(excluded_, rank)) all.members.push_back(rank);
    return all;
}

Done Shrinking::validate(const ShrinkVote &mine, const SurvivorExchange::Proposal &vote) const {
    const ShrinkVote theirs = to_vote(vote.payload, parent_.size());
    for (uint32_t rank = 0; rank < parent_.size(); rank++) {
        if (has(excluded_, rank) == has(theirs.ranks, rank)) continue;
        const bool is_ours = has(excluded_, rank);
        return Error::make(Code::mismatch,
                           "exclude: rank %" PRIu32 " leaves out rank %" PRIu32 ", rank %" PRIu32
                           " does not",
                           is_ours ? parent_.rank() : vote.rank, rank,
                           is_ours ? vote.rank : parent_.rank())
            .at_rank(vote.rank);
    }
    if (theirs.phase == mine.phase) return {};
    return Error::make(Code::mismatch,
                       "rank %" PRIu32 " and rank %" PRIu32 " are not in the same qcclCommShrink: "
                       "one of them has given up and begun again",
                       vote.rank, parent_.rank())
        .at_rank(vote.rank);
}

Result<ShrinkVote> Shrinking::agree(
    const ShrinkVote &mine,
    const std::function<ShrinkVote(const std::vector<SurvivorExchange::Proposal> &)> &decide) {
    const auto decided = survivor_exchange().agree(
        voters_, to_bytes(mine),
        [&](const SurvivorExchange::Proposal &vote) { return validate(mine, vote); },
        [&](const std::vector<SurvivorExchange::Proposal> &proposals) {
            return to_bytes(decide(proposals));
        });
    if (!decided) return decided.error();
    ShrinkVote vote = to_vote(*decided, parent_.size());
    if (vote.phase == mine.phase) return vote;
    return Error::make(Code::peer_lost,
                       "the other ranks have finished a qcclCommShrink that rank "
                       "%" PRIu32 " had given up",
                       parent_.rank());
}

Result<std::vector<uint32_t>> Shrinking::find_survivors() {
    const ShrinkVote mine{.phase = ShrinkPhase::survivors, .ranks = excluded_};
    QCCL_TRY(const ShrinkVote decided,
             agree(mine, [](const std::vector<SurvivorExchange::Proposal> &proposals) {
                 ShrinkVote all{.phase = ShrinkPhase::survivors};
                 for (const SurvivorExchange::Proposal &vote : proposals)
                     all.ranks.push_back(vote.rank);
                 return all;
             }));
    if (!has(decided.ranks, parent_.rank()))
        return Error::make(Code::peer_lost, "the other ranks have gone on without rank %" PRIu32,
                           parent_.rank());
    for (const uint32_t rank : decided.ranks)
        if (has(excluded_, rank))
            return Error::make(Code::mismatch,
                               "exclude: rank %" PRIu32 " leaves out rank %" PRIu32
                               ", with which the others have gone on",
                               parent_.rank(), rank)
                .at_rank(rank);
    if (decided.ranks.front() == parent_.rank())
        for (uint32_t rank = 0; rank < parent_.size(); rank++)
            if (!has(decided.ranks, rank))
                parent_.parts().log->info("qcclCommShrink leaves out rank %" PRIu32, rank);
    return decided.ranks;
}

Result<ShrinkVote> Shrinking::settle(const Done &mine, const std::vector<uint32_t> &survivors) {
    const ShrinkVote vote{.phase = ShrinkPhase::outcome,
                          .code = mine ? Code::success : mine.error().code,
                          .ranks = excluded_};
    return agree(vote, [&](const std::vector<SurvivorExchange::Proposal> &proposals) {
        std::vector<uint32_t> living;
        ShrinkVote end{.phase = ShrinkPhase::outcome};
        for (const SurvivorExchange::Proposal &each : proposals) {
            living.push_back(each.rank);
            if (end.code == Code::success &&
                to_vote(each.payload, parent_.size()).code != Code::success)
                end = {.phase = ShrinkPhase::outcome,
                       .code = Code::remote_error,
                       .rank = static_cast<int32_t>(each.rank)};
        }
        for (const uint32_t rank : survivors)
            if (!has(living, rank))
                end = {.phase = ShrinkPhase::outcome,
                       .code = Code::in_progress,
                       .rank = static_cast<int32_t>(rank)};
        return end;
    });
}

Result<std::vector<uint32_t>> take_excluded(const Comm &comm, const int *exclude, int count) {
    if (count < 0) return invalid_argument("exclude_count is %d, not 0 or more", count);
    if (!exclude && count > 0)
        return invalid_argument("exclude is NULL, but exclude_count is %d", count);
    std::vector<uint32_t> ranks;
    for (int i = 0; i < count; i++) {
        const auto rank = static_cast<uint32_t>(exclude[i]);
        if (exclude[i] < 0 || rank >= comm.size())
            return invalid_argument("exclude[%d] is %d, but the ranks are 0 to %" PRIu32, i,
                                    exclude[i], comm.size() - 1)
                .compared(comm.size() - 1, exclude[i]);
        if (rank == comm.rank())
            return invalid_argument(
                "exclude[%d] is %d, this rank itself; a rank that is left out does not "
                "call qcclCommShrink",
                i, exclude[i]);
        const auto same = std::find(ranks.begin(), ranks.end(), rank);
        if (same != ranks.end())
            return invalid_argument("exclude[%d] is %d, as exclude[%td] is", i, exclude[i],
                                    same - ranks.begin());
        ranks.push_back(rank);
    }
    std::sort(ranks.begin(), ranks.end());
    std::vector<uint32_t> all;
    std::set_union(ranks.begin(), ranks.end(), comm.left_out().begin(), comm.left_out().end(),
                   std::back_inserter(all));
    return all;
}

// The arguments as C passes them.
struct ShrinkArguments {
    const int *exclude;
    int exclude_count;
    qcclComm_t *comm_out;
    const qcclConfig_t *config;
    int flags;
};
struct ShrinkOrder {
    std::vector<uint32_t> excluded; // ascending, with those that earlier shrinks have excluded
    ChildSettings settings;
};

Result<ShrinkOrder> take_arguments(const Comm &comm, const ShrinkArguments &given) {
    ShrinkOrder order;
    QCCL_TRY(order.excluded, take_excluded(comm, given.exclude, given.exclude_count));
    if (!given.comm_out) return invalid_argument("comm_out is NULL");
    QCCL_TRY(order.settings.comm_config, parse_config(comm, given.config));
    if (given.flags != QCCL_SHRINK_DEFAULT && given.flags != QCCL_SHRINK_ABORT)
        return invalid_argument("flags is %d; possible are QCCL_SHRINK_DEFAULT (%d) and "
                                "QCCL_SHRINK_ABORT (%d)",
                                given.flags, QCCL_SHRINK_DEFAULT, QCCL_SHRINK_ABORT);
    return order;
}

// If the communicator's own failure ended the shrink, the caller knows that failure from now on,
// and may shrink what is left.
Error failed(Comm &comm, const Error &error) {
    const auto failure = comm.failure();
    const bool is_its_failure = failure && std::strcmp(failure->error.text, error.text) == 0;
    return is_its_failure ? comm.abandon(comm_shrink, error) : error;
}

Result<std::shared_ptr<Comm>> shrink(Comm &parent, const ShrinkOrder &order, CommTask *task) {
    QCCL_TRY(const CallSequencer::Hold hold,
             wait_in(parent, task, [&] { return parent.hold_calls(); }));
    auto made = Shrinking(parent, order.excluded, order.settings, task).run();
    if (!made) return failed(parent, made.error());
    parent.leave_out(order.excluded);
    return made;
}

// Fails the communicator on every rank, so that no thread stays inside.
Done end_calls(const CommRef &comm, const ShrinkArguments &given) {
    QCCL_TRY(take_arguments(*comm, given));
    QCCL_TRY(check_outside(comm));
    if (comm.record().entry_guard.is_closed(comm.generation()))
        return refuse_entry(comm.record(), EntryGuard::Answer::closed);
    comm->fail(Error::make(Code::revoked, "rank %" PRIu32 " shrinks the communicator", comm->rank())
                   .at_rank(comm->rank()));
    return {};
}

} // namespace

} // namespace qccl

using namespace qccl;

qcclResult_t qcclCommShrink(qcclComm_t comm, const int exclude[], int exclude_count,
                            qcclComm_t *comm_out, const qcclConfig_t *config, int flags) {
    const ShrinkArguments given{exclude, exclude_count, comm_out, config, flags};
    const auto start = [&](Comm &parent, LaterWork &later) -> Done {
        QCCL_TRY(const ShrinkOrder order, take_arguments(parent, given));
        const auto create = [&parent, order](CommTask *task) {
            return shrink(parent, order, task);
        };
        return make_child_comm(order.settings.comm_config, true, comm_out, later, create);
    };
    if (flags != QCCL_SHRINK_ABORT) return inside_or_later(comm, start);
    return with_reference(comm, [&](const CommRef &parent) -> Done {
        QCCL_TRY(noted(*parent, [&](Comm &) { return end_calls(parent, given); }));
        QCCL_TRY(enter_after_others(parent));
        return do_or_leave_to(parent.record(), start);
    });
}
QCCL_TWIN(qcclCommShrink);
