// Agreements: votes, their leader, and what it decides.
#include "transport/council.hpp"

#include "transport/notice.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <thread>

namespace qccl {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Who has decided waits no longer than that for far ranks to have heard it.
constexpr auto longest_echo = 1s;

struct BallotHead {
    uint64_t number = 0;
    uint32_t leader = 0;
    uint32_t attempt = 0;
    uint32_t is_given_up = 0;
    uint32_t zero = 0;
};

} // namespace

Result<Council::Bytes> Council::agree(const Circle &circle, const Bytes &mine,
                                      const Objection &object, const Decision &decide) {
    auto decided = decide_with(circle, mine, object, decide);
    // Others wait for what this rank has said last, whatever it returns with.
    see_off();
    return decided;
}

Result<Council::Bytes> Council::decide_with(const Circle &circle, const Bytes &mine,
                                            const Objection &object, const Decision &decide) {
    CircleWait wait(party_, circle, manners_);
    Bytes latest; // vote
    const uint32_t attempt = ++attempt_;
    party_.mine().presence().ignores_failure.store(0, std::memory_order_relaxed);
    if (courier_) courier_->ask_all(history_.current().call + 1);
    for (;;) {
        look(circle); // first: what a member has decided before it was gone counts
        const Ballots ballots = read_ballots(circle);
        QCCL_TRY(hear_of_gone(circle, ballots));
        if (const Done compared = check_calls(circle, ballots); !compared)
            return give_up(circle, attempt, compared.error());
        const uint32_t leads = leader(circle);
        QCCL_TRY(auto found, find_resolution(circle, leads));
        if (found) {
            take_up(circle, *found);
            return found->bytes;
        }
        if (latest.empty()) publish_vote(circle, leads, false, mine, latest);
        QCCL_TRY(join_attempt(circle, ballots, object));
        publish_vote(circle, leads, false, mine, latest);
        std::vector<Vote> votes;
        QCCL_TRY(const Attendance there, count(circle, ballots, leads, object, votes));
        if (leads == party_.rank && !there.missing) {
            Bytes decided = decide(votes);
            take_up(circle, {.number = agreements_ + 1, .leader = leads, .bytes = decided});
            await_echo(circle);
            return decided;
        }
        QCCL_TRY(wait.step(there));
    }
}

Council::Ballots Council::read_ballots(const Circle &circle) const {
    Ballots ballots;
    for (const uint32_t member : circle.members) ballots.push_back(ballot_of(member));
    return ballots;
}

// What others know of who is gone; they may be nearer.
Done Council::hear_of_gone(const Circle &circle, const Ballots &ballots) {
    for (size_t i = 0; i < ballots.size(); i++) {
        const uint32_t member = circle.members[i];
        const auto &ballot = ballots[i];
        if (member == party_.rank || gone_[member] || !ballot) continue;
        if (ballot->gone[party_.rank])
            return Error::make(Code::peer_lost,
                               "rank %u, which cannot be reached from here or could not for too "
                               "long, goes on without rank %u",
                               member, party_.rank)
                .at_rank(member);
        for (uint32_t rank = 0; rank < party_.size(); rank++)
            if (ballot->gone[rank]) gone_[rank] = true;
    }
    return {};
}

bool Council::has_finished(uint32_t rank) const {
    const auto resolution = resolution_of(rank);
    return resolution && resolution->number > agreements_;
}

// Ranks that made different calls may go on with different data, so each has to be told before it
// goes on at all. A member in a later call than this rank's latest will not vote, and waits in that
// call for ranks that are here. Where calls have failed already, or a rank that is gone has kept
// some from a call, ranks come here after different calls, but those that have ended were the same.
Done Council::check_calls(const Circle &circle, const Ballots &ballots) {
    if (const auto failure = vigil_.failure()) {
        if (failure->code != Code::mismatch) return compare_ended(circle, ballots);
        return circle.is_failure_known ? Done() : Done(*failure);
    }
    const auto gone = std::find(gone_.begin(), gone_.end(), true);
    for (const uint32_t member : circle.members) {
        if (member == party_.rank || gone_[member]) continue;
        const uint64_t begun = history_.begun(member);
        const bool is_in_call = begun > history_.current().call && !has_finished(member);
        const auto differs = history_.disagreement(member);
        if (!is_in_call && !differs) continue;
        if (gone == gone_.end()) return manners_.mismatch(differs.value_or(begun));
        manners_.fail(lost(circle, static_cast<uint32_t>(gone - gone_.begin())));
        return {};
    }
    return {};
}

// All pairs are compared by both of their ranks, so a difference leaves no rank that agrees with
// all others, and each is told once. The communicator's failure stays what it is.
Done Council::compare_ended(const Circle &circle, const Ballots &ballots) {
    for (size_t i = 0; i < ballots.size() && !knows_difference_; i++) {
        const uint32_t member = circle.members[i];
        if (member == party_.rank || !ballots[i]) continue;
        const auto call = EndedCalls::difference(history_.ended(), ballots[i]->ended);
        if (!call) continue;
        knows_difference_ = true;
        const auto [low, high] = std::minmax(party_.rank, member);
        return Error::make(Code::mismatch,
                           "rank %u and rank %u made different calls before the communicator "
                           "failed, in call %" PRIu64,
                           low, high, *call)
            .at_rank(high);
    }
    return {};
}

// The vote of this attempt counts no more: either all members agree, or none does. Members that
// have been told before wait for this rank to come again, and no longer than for one that ignores
// the failure.
Error Council::give_up(const Circle &circle, uint32_t attempt, const Error &error) {
    attempt_ = attempt; // not one that others have begun since
    party_.mine().presence().ignores_failure.store(1, std::memory_order_relaxed);
    Bytes latest;
    publish_vote(circle, leader(circle), true, {}, latest);
    return error;
}

// Somebody has given up and begun again; what it had said before counts no more. Whoever objects to
// what it says now has no part in that.
Done Council::join_attempt(const Circle &circle, const Ballots &ballots, const Objection &object) {
    uint32_t latest = attempt_;
    for (size_t i = 0; i < ballots.size(); i++) {
        const uint32_t member = circle.members[i];
        const auto &ballot = ballots[i];
        if (gone_[member] || !ballot || ballot->is_given_up || ballot->number != agreements_ + 1 ||
            ballot->attempt <= attempt_)
            continue;
        QCCL_TRY(object({.rank = member, .said = ballot->said}));
        latest = std::max(latest, ballot->attempt);
    }
    attempt_ = latest;
    return {};
}

uint32_t Council::leader(const Circle &circle) const {
    for (const uint32_t member : circle.members)
        if (!gone_[member]) return member;
    return party_.rank;
}

void Council::publish_vote(const Circle &circle, uint32_t leader, bool is_given_up,
                           const Bytes &said, Bytes &latest) {
    std::vector<uint64_t> gone((party_.size() + 63) / 64);
    for (uint32_t rank = 0; rank < party_.size(); rank++)
        gone[rank / 64] |= uint64_t{gone_[rank]} << rank % 64;
    const auto mask = std::as_bytes(std::span(gone));
    const auto ended = std::as_bytes(std::span(&history_.ended(), 1));
    Bytes rest(ended.begin(), ended.end());
    rest.insert(rest.end(), mask.begin(), mask.end());
    rest.insert(rest.end(), said.begin(), said.end());
    Bytes ballot = joined(BallotHead{.number = agreements_ + 1,
                                     .leader = leader,
                                     .attempt = attempt_,
                                     .is_given_up = is_given_up},
                          rest);
    if (ballot == latest) return;
    publish(circle, vote, ballot);
    latest = std::move(ballot);
}

std::optional<Council::Ballot> Council::ballot_of(uint32_t rank) const {
    const auto notice = read_notice(party_.segments[rank], vote);
    const auto head = notice ? head_of<BallotHead>(*notice) : std::nullopt;
    std::vector<uint64_t> gone((party_.size() + 63) / 64);
    const auto mask = std::as_writable_bytes(std::span(gone));
    EndedCalls ended;
    if (!head || notice->size() < sizeof *head + sizeof ended + mask.size()) return std::nullopt;
    std::memcpy(&ended, notice->data() + sizeof *head, sizeof ended);
    const auto begin = notice->begin() + sizeof *head + sizeof ended;
    const auto end = begin + static_cast<ptrdiff_t>(mask.size());
    std::copy(begin, end, mask.begin());
    Ballot ballot{.number = head->number,
                  .leader = head->leader,
                  .attempt = head->attempt,
                  .is_given_up = head->is_given_up != 0,
                  .ended = ended,
                  .gone = std::vector<bool>(party_.size()),
                  .said = Bytes(end, notice->end())};
    for (uint32_t other = 0; other < party_.size(); other++)
        ballot.gone[other] = (gone[other / 64] >> other % 64 & 1) != 0;
    return ballot;
}

std::optional<Council::Resolution> Council::resolution_of(uint32_t rank) const {
    const auto notice = read_notice(party_.segments[rank], decision);
    const auto head = notice ? head_of<BallotHead>(*notice) : std::nullopt;
    if (!head) return std::nullopt;
    return Resolution{.number = head->number,
                      .leader = head->leader,
                      .bytes = Bytes(notice->begin() + sizeof *head, notice->end())};
}

// That this rank may take up.
Result<std::optional<Council::Resolution>> Council::find_resolution(const Circle &circle,
                                                                    uint32_t leader) const {
    std::optional<uint32_t> ahead;
    for (const uint32_t member : circle.members) {
        auto found = resolution_of(member);
        if (!found || found->number <= agreements_) continue;
        // Of an earlier leader, and the one at hand has not taken it up.
        const bool is_late = found->leader < leader && leader != member && leader != party_.rank;
        if (found->number == agreements_ + 1 && !is_late) return found;
        if (found->number > agreements_ + 1) ahead = member;
    }
    if (!ahead) return std::optional<Resolution>();
    return Error::make(Code::peer_lost, "%s: rank %u and others have gone on without rank %u",
                       circle.what, *ahead, party_.rank)
        .at_rank(*ahead);
}

// Who has voted for this leader, and who of the living has not.
Result<Attendance> Council::count(const Circle &circle, const Ballots &ballots, uint32_t leader,
                                  const Objection &object, std::vector<Vote> &votes) const {
    Attendance found;
    for (size_t i = 0; i < ballots.size(); i++) {
        const uint32_t member = circle.members[i];
        if (gone_[member]) continue;
        // This rank's own may be newer by now.
        const auto ballot = member == party_.rank ? ballot_of(member) : ballots[i];
        const bool has_come = ballot && ballot->number == agreements_ + 1 &&
                              ballot->attempt == attempt_ && !ballot->is_given_up;
        if (has_come) found.meet(member, party_.rank);
        if (!has_come || ballot->leader != leader) found.miss(member);
        if (!has_come) continue;
        votes.push_back({.rank = member, .said = ballot->said});
        QCCL_TRY(object(votes.back()));
    }
    return found;
}

void Council::take_up(const Circle &circle, const Resolution &resolution) {
    agreements_ = resolution.number;
    attempt_ = 0;
    publish(circle, decision,
            joined(BallotHead{.number = resolution.number, .leader = resolution.leader},
                   resolution.bytes));
}

// Whoever leads and has decided may leave as soon as it returns, and letters may stay behind.
void Council::await_echo(const Circle &circle) {
    if (!courier_) return;
    const auto has_heard = [&](uint32_t member) {
        const auto theirs = resolution_of(member);
        return party_.is_near(member) || gone_[member] || (theirs && theirs->number >= agreements_);
    };
    const auto deadline = Clock::now() + longest_echo;
    while (!std::all_of(circle.members.begin(), circle.members.end(), has_heard) &&
           Clock::now() < deadline) {
        look(circle);
        std::this_thread::sleep_for(50us);
    }
}

} // namespace qccl
