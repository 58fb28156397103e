// The steps of a group's wait (a warning, a timeout, and naps in between), exchanges over seqlock
// records, and agreements. In an exchange each rank writes its own record and looks at the others'
// until it has them all. In an agreement members publish votes, the leader decides, and the other
// members adopt its decision.
#include "fault/survivor_exchange.hpp"

#include "base/clock.hpp"
#include "memory/segment.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <thread>

namespace qccl {

// ---- Waits of a group

using namespace std::chrono_literals;

// Between two looks at whether the others have come.
static constexpr std::chrono::nanoseconds first_pause = 20us, longest_pause = 1ms;

std::chrono::nanoseconds GroupWait::timeout_for(uint32_t member) const {
    const RankStatus &status = peer_table_.segments[member].status();
    if (status.ignores_failure.load(std::memory_order_relaxed) == 0) return group_.timeout;
    if (group_.timeout == 0ns) return warning_.peer_timeout;
    return std::min(group_.timeout, warning_.peer_timeout);
}

Done GroupWait::step(const ArrivalState &found) {
    const uint32_t missing = found.missing.value_or(group_.members.front());
    const auto waited = Clock::now() - began_;
    if (waited >= warning_.warn_after && !found.is_led && !has_warned_) {
        has_warned_ = true;
        const Error warning = Error::make(
            Code::timeout, "rank %u (pid %" PRId64 ") has not come to %s for %g s", missing,
            peer_table_.pids[missing], group_.what, in_seconds(warning_.warn_after));
        if (warning_.warn) warning_.warn(warning.text);
    }
    const auto timeout = timeout_for(missing);
    if (timeout != 0ns && waited >= timeout)
        return Error::make(Code::timeout, "rank %u did not come to %s within %g s", missing,
                           group_.what, in_seconds(timeout))
            .at_rank(missing);
    if (group_.is_called_off && group_.is_called_off())
        return Error::make(Code::invalid_usage,
                           "%s: the communicator is being ended by another thread", group_.what);
    if (group_.cancel_check) QCCL_TRY(group_.cancel_check());
    pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
    std::this_thread::sleep_for(pause_);
    return {};
}

// ---- Exchanges

namespace {

// Precedes a rank's share.
struct ShareHead {
    uint64_t topic = 0;
    uint64_t round = 0;
    uint64_t is_abandoned = 0; // the Error that explains why follows
};

} // namespace

void SurvivorExchange::publish(const MemberGroup &group, uint32_t record,
                               std::span<const std::byte> bytes) {
    write_record(peer_table_.mine(), record, ++version_, bytes);
    if (!remote_) return;
    std::vector<uint32_t> remote;
    for (const uint32_t member : group.members)
        if (!peer_table_.is_local(member) && !gone_[member]) remote.push_back(member);
    remote_->send_record(record, version_, bytes, remote);
}

// Notes which members are gone; a member that is gone stays gone. What a member sent before that
// comes another way and still counts, so the network is progressed once more at the end.
void SurvivorExchange::look(const MemberGroup &group) {
    if (remote_) remote_->progress(); // tells which ranks are unreachable
    detector_.check_liveness();
    for (const uint32_t rank : group.members)
        if (rank != peer_table_.rank && detector_.is_gone(rank)) gone_[rank] = true;
    while (remote_ && remote_->progress()) {}
}

Error SurvivorExchange::lost(const MemberGroup &group, uint32_t rank) const {
    return Error::make(Code::peer_lost, "rank %u (pid %" PRId64 ") died or left during %s", rank,
                       peer_table_.pids[rank], group.what)
        .at_rank(rank);
}

Done SurvivorExchange::check(const MemberGroup &group) {
    look(group);
    for (const uint32_t member : group.members) {
        if (const auto why = abandonment(group, member)) return *why;
        if (gone_[member]) return lost(group, member);
    }
    return {};
}

Done SurvivorExchange::all_gather(MemberGroup &group, const void *mine, void *all, size_t bytes) {
    const size_t most =
        peer_table_.mine().record_words(share_record).size_bytes() - sizeof(ShareHead);
    // A share that does not fit into one record goes in parts.
    for (size_t at = 0; at == 0 || at < bytes; at += most) {
        const std::span<const std::byte> part(static_cast<const std::byte *>(mine) + at,
                                              std::min(most, bytes - at));
        const Done done = exchange(group, part, static_cast<std::byte *>(all) + at, bytes);
        if (done) continue;
        abandon(group, for_others(group, done.error()));
        return done;
    }
    return {};
}

// Only this rank's caller knows of another thread. For the other members it is this rank.
Error SurvivorExchange::for_others(const MemberGroup &group, const Error &error) const {
    if (!group.is_called_off || !group.is_called_off()) return error;
    return Error::make(Code::revoked, "%s: rank %u has ended the communicator", group.what,
                       peer_table_.rank)
        .at_rank(peer_table_.rank);
}

Done SurvivorExchange::exchange(MemberGroup &group, std::span<const std::byte> mine, std::byte *all,
                                size_t stride) {
    const ShareHead head{.topic = group.topic, .round = ++group.round};
    // This overwrites the share of two rounds before. No member needs that share, since all of them
    // have come to the round in between.
    last_turns_[group.is_apart] = group.round % 2;
    publish(group, first_share_record(group) + group.round % 2, joined(head, mine));
    GroupWait wait(peer_table_, group, warning_);
    std::vector<bool> has(group.members.size());
    for (;;) {
        look(group); // first: a share that a member gave before it died counts
        ArrivalState found;
        for (size_t i = 0; i < has.size(); i++) {
            const uint32_t member = group.members[i];
            if (const auto why = abandonment(group, member)) return *why;
            if (!has[i]) {
                QCCL_TRY(has[i], take_share(group, member, {all + i * stride, mine.size()}));
            }
            if (has[i])
                found.note_arrival(member, peer_table_.rank);
            else if (gone_[member])
                return lost(group, member);
            else
                found.miss(member);
        }
        if (!found.missing) break;
        QCCL_TRY(wait.step(found));
    }
    flush_records();
    return {};
}

// Returns false if the member has not come to this round, mismatch if its share has another size.
Result<bool> SurvivorExchange::take_share(const MemberGroup &group, uint32_t member,
                                          std::span<std::byte> to) const {
    for (const uint32_t turn : {0U, 1U}) {
        const auto record =
            read_record(peer_table_.segments[member], first_share_record(group) + turn);
        const auto head = record ? head_of<ShareHead>(*record) : std::nullopt;
        if (!head || head->topic != group.topic) continue;
        if (head->is_abandoned != 0 || head->round != group.round) continue;
        const auto rest = std::span(*record).subspan(sizeof *head);
        if (rest.size() != to.size())
            return Error::make(Code::mismatch, "%s: rank %u gives %zu bytes, rank %u gives %zu",
                               group.what, member, rest.size(), peer_table_.rank, to.size())
                .at_rank(member);
        std::copy(rest.begin(), rest.end(), to.begin());
        return true;
    }
    return false;
}

// Returns the error with which the member has given up, also after it gave its share.
std::optional<Error> SurvivorExchange::abandonment(const MemberGroup &group,
                                                   uint32_t member) const {
    Error error;
    for (const uint32_t turn : {0U, 1U}) {
        const auto record =
            read_record(peer_table_.segments[member], first_share_record(group) + turn,
                        sizeof(ShareHead) + sizeof error);
        const auto head = record ? head_of<ShareHead>(*record) : std::nullopt;
        if (!head || head->topic != group.topic || head->is_abandoned == 0) continue;
        if (record->size() == sizeof *head + sizeof error)
            std::memcpy(&error, record->data() + sizeof *head, sizeof error);
        return sanitize_remote(error, member, peer_table_.size());
    }
    return std::nullopt;
}

// The share that this rank gave last stays, because members of that group may not have it yet.
void SurvivorExchange::abandon(const MemberGroup &group, const Error &error) {
    const ShareHead head{.topic = group.topic, .is_abandoned = 1};
    publish(group, first_share_record(group) + 1 - last_turns_[group.is_apart],
            joined(head, std::as_bytes(std::span(&error, 1))));
    flush_records();
}

// ---- Agreements

namespace {

using Clock = std::chrono::steady_clock;

// The leader waits at most this long for remote members to adopt its decision.
constexpr auto longest_ack_wait = 1s;

struct VoteHead {
    uint64_t number = 0;
    uint32_t leader = 0;
    uint32_t attempt = 0;
    uint32_t is_given_up = 0;
    uint32_t zero = 0;
};

} // namespace

Result<SurvivorExchange::Bytes> SurvivorExchange::agree(const MemberGroup &group, const Bytes &mine,
                                                        const Validator &validate,
                                                        const Decide &decide) {
    auto decided = decide_with(group, mine, validate, decide);
    // Other ranks wait for the last record of this rank, whatever `agree` returns.
    flush_records();
    return decided;
}

Result<SurvivorExchange::Bytes> SurvivorExchange::decide_with(const MemberGroup &group,
                                                              const Bytes &mine,
                                                              const Validator &validate,
                                                              const Decide &decide) {
    GroupWait wait(peer_table_, group, warning_);
    Bytes latest; // the vote published last
    const uint32_t attempt = ++attempt_;
    peer_table_.mine().status().ignores_failure.store(0, std::memory_order_relaxed);
    if (remote_) remote_->request_status_of_all(history_.current().call + 1);
    for (;;) {
        look(group); // first: a decision that a member published before it died counts
        const Votes votes = read_votes(group);
        QCCL_TRY(merge_gone(group, votes));
        if (const Done compared = check_calls(group, votes); !compared)
            return give_up(group, attempt, compared.error());
        const uint32_t leads = leader(group);
        QCCL_TRY(auto found, find_decision(group, leads));
        if (found) {
            adopt(group, *found);
            return found->bytes;
        }
        if (latest.empty()) publish_vote(group, leads, false, mine, latest);
        QCCL_TRY(adopt_latest_attempt(group, votes, validate));
        publish_vote(group, leads, false, mine, latest);
        std::vector<Proposal> proposals;
        QCCL_TRY(const ArrivalState there, count(group, votes, leads, validate, proposals));
        if (leads == peer_table_.rank && !there.missing) {
            Bytes decided = decide(proposals);
            adopt(group, {.number = agreements_ + 1, .leader = leads, .bytes = decided});
            await_acks(group);
            return decided;
        }
        QCCL_TRY(wait.step(there));
    }
}

SurvivorExchange::Votes SurvivorExchange::read_votes(const MemberGroup &group) const {
    Votes votes;
    for (const uint32_t member : group.members) votes.push_back(vote_of(member));
    return votes;
}

// Adds the ranks that other members know to be gone; those members may be on the same host as such
// a rank. Returns peer_lost if a member counts this rank as gone.
Done SurvivorExchange::merge_gone(const MemberGroup &group, const Votes &votes) {
    for (size_t i = 0; i < votes.size(); i++) {
        const uint32_t member = group.members[i];
        const auto &vote = votes[i];
        if (member == peer_table_.rank || gone_[member] || !vote) continue;
        if (vote->gone[peer_table_.rank])
            return Error::make(Code::peer_lost,
                               "rank %u, which cannot be reached from here or could not for too "
                               "long, goes on without rank %u",
                               member, peer_table_.rank)
                .at_rank(member);
        for (uint32_t rank = 0; rank < peer_table_.size(); rank++)
            if (vote->gone[rank]) gone_[rank] = true;
    }
    return {};
}

bool SurvivorExchange::has_finished(uint32_t rank) const {
    const auto decision = decision_of(rank);
    return decision && decision->number > agreements_;
}

// Checks that no member makes another call of the communicator instead. Ranks that made different
// calls may hold different data, so each of them must be told before it goes on. A member in a
// later call than this rank's latest will not vote: it waits in that call for ranks that are here.
// If the communicator has failed already, or if a rank that is gone has kept some ranks from a
// call, the ranks come here after different calls. Then only the calls that have ended must have
// been the same.
Done SurvivorExchange::check_calls(const MemberGroup &group, const Votes &votes) {
    if (const auto failure = detector_.failure()) {
        if (failure->code != Code::mismatch) return compare_ended(group, votes);
        return group.is_failure_known ? Done() : Done(*failure);
    }
    const auto gone = std::find(gone_.begin(), gone_.end(), true);
    for (const uint32_t member : group.members) {
        if (member == peer_table_.rank || gone_[member]) continue;
        const uint64_t begun = history_.begun(member);
        const bool is_in_call = begun > history_.current().call && !has_finished(member);
        const auto differs = history_.disagreement(member);
        if (!is_in_call && !differs) continue;
        if (gone == gone_.end()) return warning_.mismatch(differs.value_or(begun));
        warning_.fail(lost(group, static_cast<uint32_t>(gone - gone_.begin())));
        return {};
    }
    return {};
}

// Both ranks of each pair compare their calls. If two ranks differ, no rank agrees with all others,
// so every rank finds a difference; it returns that error once. The communicator's recorded failure
// does not change.
Done SurvivorExchange::compare_ended(const MemberGroup &group, const Votes &votes) {
    for (size_t i = 0; i < votes.size() && !knows_difference_; i++) {
        const uint32_t member = group.members[i];
        if (member == peer_table_.rank || !votes[i]) continue;
        const auto call = EndedCalls::difference(history_.ended(), votes[i]->ended);
        if (!call) continue;
        knows_difference_ = true;
        const auto [low, high] = std::minmax(peer_table_.rank, member);
        return Error::make(Code::mismatch,
                           "rank %u and rank %u made different calls before the communicator "
                           "failed, in call %" PRIu64,
                           low, high, *call)
            .at_rank(high);
    }
    return {};
}

// Withdraws this rank's vote of this attempt: either all members agree, or none does. Members that
// returned an error earlier and have come again wait for this rank to come again too, but no longer
// than for a rank that ignores the failure.
Error SurvivorExchange::give_up(const MemberGroup &group, uint32_t attempt, const Error &error) {
    attempt_ = attempt; // not a later attempt that others have begun since
    peer_table_.mine().status().ignores_failure.store(1, std::memory_order_relaxed);
    Bytes latest;
    publish_vote(group, leader(group), true, {}, latest);
    return error;
}

// Joins the latest attempt that a member has begun after it gave up an earlier one; what that
// member published before no longer counts. Returns the validator's error if this rank rejects the
// member's new vote; then this rank does not join.
Done SurvivorExchange::adopt_latest_attempt(const MemberGroup &group, const Votes &votes,
                                            const Validator &validate) {
    uint32_t latest = attempt_;
    for (size_t i = 0; i < votes.size(); i++) {
        const uint32_t member = group.members[i];
        const auto &vote = votes[i];
        if (gone_[member] || !vote || vote->is_given_up || vote->number != agreements_ + 1 ||
            vote->attempt <= attempt_)
            continue;
        QCCL_TRY(validate({.rank = member, .payload = vote->payload}));
        latest = std::max(latest, vote->attempt);
    }
    attempt_ = latest;
    return {};
}

uint32_t SurvivorExchange::leader(const MemberGroup &group) const {
    for (const uint32_t member : group.members)
        if (!gone_[member]) return member;
    return peer_table_.rank;
}

void SurvivorExchange::publish_vote(const MemberGroup &group, uint32_t leader, bool is_given_up,
                                    const Bytes &payload, Bytes &latest) {
    std::vector<uint64_t> gone((peer_table_.size() + 63) / 64);
    for (uint32_t rank = 0; rank < peer_table_.size(); rank++)
        gone[rank / 64] |= uint64_t{gone_[rank]} << rank % 64;
    const auto mask = std::as_bytes(std::span(gone));
    const auto ended = std::as_bytes(std::span(&history_.ended(), 1));
    Bytes rest(ended.begin(), ended.end());
    rest.insert(rest.end(), mask.begin(), mask.end());
    rest.insert(rest.end(), payload.begin(), payload.end());
    Bytes vote = joined(VoteHead{.number = agreements_ + 1,
                                 .leader = leader,
                                 .attempt = attempt_,
                                 .is_given_up = is_given_up},
                        rest);
    if (vote == latest) return;
    publish(group, vote_record, vote);
    latest = std::move(vote);
}

std::optional<SurvivorExchange::Vote> SurvivorExchange::vote_of(uint32_t rank) const {
    const auto record = read_record(peer_table_.segments[rank], vote_record);
    const auto head = record ? head_of<VoteHead>(*record) : std::nullopt;
    std::vector<uint64_t> gone((peer_table_.size() + 63) / 64);
    const auto mask = std::as_writable_bytes(std::span(gone));
    EndedCalls ended;
    if (!head || record->size() < sizeof *head + sizeof ended + mask.size()) return std::nullopt;
    std::memcpy(&ended, record->data() + sizeof *head, sizeof ended);
    const auto begin = record->begin() + sizeof *head + sizeof ended;
    const auto end = begin + static_cast<ptrdiff_t>(mask.size());
    std::copy(begin, end, mask.begin());
    Vote vote{.number = head->number,
              .leader = head->leader,
              .attempt = head->attempt,
              .is_given_up = head->is_given_up != 0,
              .ended = ended,
              .gone = std::vector<bool>(peer_table_.size()),
              .payload = Bytes(end, record->end())};
    for (uint32_t other = 0; other < peer_table_.size(); other++)
        vote.gone[other] = (gone[other / 64] >> other % 64 & 1) != 0;
    return vote;
}

std::optional<SurvivorExchange::Decision> SurvivorExchange::decision_of(uint32_t rank) const {
    const auto record = read_record(peer_table_.segments[rank], decision_record);
    const auto head = record ? head_of<VoteHead>(*record) : std::nullopt;
    if (!head) return std::nullopt;
    return Decision{.number = head->number,
                    .leader = head->leader,
                    .bytes = Bytes(record->begin() + sizeof *head, record->end())};
}

// Returns a decision that this rank may adopt, if there is one. Returns peer_lost if members have
// gone on to later agreements without this rank.
Result<std::optional<SurvivorExchange::Decision>>
SurvivorExchange::find_decision(const MemberGroup &group, uint32_t leader) const {
    std::optional<uint32_t> ahead;
    for (const uint32_t member : group.members) {
        auto found = decision_of(member);
        if (!found || found->number <= agreements_) continue;
        // An earlier leader made this decision, and the present leader has not adopted it.
        const bool is_late =
            found->leader < leader && leader != member && leader != peer_table_.rank;
        if (found->number == agreements_ + 1 && !is_late) return found;
        if (found->number > agreements_ + 1) ahead = member;
    }
    if (!ahead) return std::optional<Decision>();
    return Error::make(Code::peer_lost, "%s: rank %u and others have gone on without rank %u",
                       group.what, *ahead, peer_table_.rank)
        .at_rank(*ahead);
}

// Collects the proposals of the members that have voted in this attempt. `missing` becomes the
// lowest living member that has not voted for this leader. Returns the validator's error, if any.
Result<ArrivalState> SurvivorExchange::count(const MemberGroup &group, const Votes &votes,
                                             uint32_t leader, const Validator &validate,
                                             std::vector<Proposal> &proposals) const {
    ArrivalState found;
    for (size_t i = 0; i < votes.size(); i++) {
        const uint32_t member = group.members[i];
        if (gone_[member]) continue;
        // This rank's own vote may be newer than the one in `votes`.
        const auto vote = member == peer_table_.rank ? vote_of(member) : votes[i];
        const bool has_come = vote && vote->number == agreements_ + 1 &&
                              vote->attempt == attempt_ && !vote->is_given_up;
        if (has_come) found.note_arrival(member, peer_table_.rank);
        if (!has_come || vote->leader != leader) found.miss(member);
        if (!has_come) continue;
        proposals.push_back({.rank = member, .payload = vote->payload});
        QCCL_TRY(validate(proposals.back()));
    }
    return found;
}

void SurvivorExchange::adopt(const MemberGroup &group, const Decision &decision) {
    agreements_ = decision.number;
    attempt_ = 0;
    publish(group, decision_record,
            joined(VoteHead{.number = decision.number, .leader = decision.leader}, decision.bytes));
}

// The leader may leave the communicator as soon as it returns its decision, and then messages may
// be left unsent. So the leader waits until the remote members have adopted the decision.
void SurvivorExchange::await_acks(const MemberGroup &group) {
    if (!remote_) return;
    const auto has_acked = [&](uint32_t member) {
        const auto theirs = decision_of(member);
        return peer_table_.is_local(member) || gone_[member] ||
               (theirs && theirs->number >= agreements_);
    };
    const auto deadline = Clock::now() + longest_ack_wait;
    while (!std::all_of(group.members.begin(), group.members.end(), has_acked) &&
           Clock::now() < deadline) {
        look(group);
        std::this_thread::sleep_for(50us);
    }
}

} // namespace qccl
