// What the ranks of a communicator do outside its calls, whether or not these have failed: some of
// the ranks exchange bytes, or all ranks that are left agree on bytes although any of them may die
// meanwhile. A MemberGroup names the ranks that meet, and a GroupWait is how they wait for each
// other. Used by the split and the shrink of communicators. `all_gather` and `agree` block; a wait
// belongs to one thread, which sleeps in it.
//
// An agreement has a number, which is the same on all ranks. Every rank votes. A rank's leader is
// the lowest member that the rank does not know to be gone, and the rank's vote names this leader.
// A leader decides when it has the votes of all members that are not gone and each vote names it. A
// rank that adopts a decision publishes it again. The decision of an earlier leader is adopted only
// from the present leader. The present leader hears of that decision before it could decide
// otherwise, because ranks that have adopted a decision no longer vote for the present leader.
#pragma once

#include "base/clock.hpp"
#include "fault/failure_detector.hpp"
#include "fault/published_state.hpp"
#include "memory/peer_table.hpp"
#include "memory/segment.hpp"

#include <chrono>
#include <functional>
#include <optional>

namespace qccl {

// ---- Groups and their waits

struct MemberGroup {
    uint64_t topic = 0;                 // no other group of the communicator has the same
    std::vector<uint32_t> members{};    // in the order in which they give and receive
    std::chrono::nanoseconds timeout{}; // of one wait; 0 means no limit
    const char *what = "";              // the caller's function: "qcclCommShrink"
    // Whether another thread of this rank ends the communicator. The other members of an exchange
    // get that as an error of this rank. May be empty.
    std::function<bool()> is_called_off{};
    // An error ends this rank's waits, and the other members get it. May be empty.
    CancelCheck cancel_check{};
    // Whether a call of this rank has returned the communicator's failure, if it has failed.
    bool is_failure_known = false;
    // Whether ranks meet of which others know nothing: two that send to each other, or those that a
    // shrink does not exclude. The others may still read what these ranks published in a group of
    // all, so these ranks publish elsewhere. Before they are done, all of them have read that.
    bool is_apart = false;
    uint64_t round = 0; // exchanges begun so far
};

// When a wait warns and fails, and how.
struct WaitWarning {
    std::chrono::nanoseconds warn_after{};
    std::function<void(const char *sentence)> warn; // may be empty
    // Bounds the wait for a rank that ignores the communicator's failure.
    std::chrono::nanoseconds peer_timeout{};
    // Both fail the communicator. `mismatch` is for a rank that has begun a call which this rank
    // has not made.
    std::function<Error(uint64_t call)> mismatch{};
    std::function<void(const Error &error)> fail{};
};

// What one look at the members has found.
struct ArrivalState {
    std::optional<uint32_t> missing; // the lowest member that has not come
    bool is_led = false;             // a member that has come is lower than this rank

    void miss(uint32_t member) { missing = std::min(missing.value_or(member), member); }
    void note_arrival(uint32_t member, uint32_t own_rank) { is_led |= member < own_rank; }
};

// One wait, which begins now.
class GroupWait {
public:
    GroupWait(const PeerTable &peer_table, const MemberGroup &group, const WaitWarning &warning)
        : peer_table_(peer_table), group_(group), warning_(warning) {}

    // Sleeps for a moment. Returns timeout if the wait has lasted too long, and invalid_usage if
    // another thread ends the communicator. Before a timeout, a rank that is not led warns for all.
    Done step(const ArrivalState &found);

private:
    using Clock = std::chrono::steady_clock;

    std::chrono::nanoseconds timeout_for(uint32_t member) const;

    const PeerTable &peer_table_;
    const MemberGroup &group_;
    const WaitWarning &warning_;
    const Clock::time_point began_ = Clock::now();
    std::chrono::nanoseconds pause_{};
    bool has_warned_ = false;
};

// ---- Exchange and agreement

class SurvivorExchange {
public:
    // `remote`: null if all ranks are local.
    SurvivorExchange(const PeerTable &peer_table, const CallHistory &history,
                     FailureDetector &detector, RemoteRanks *remote, WaitWarning warning)
        : peer_table_(peer_table), history_(history), detector_(detector), remote_(remote),
          warning_(std::move(warning)), gone_(peer_table.size()) {}

    // Gathers `bytes` bytes of each member into `all`, in the members' order; `bytes` is equal on
    // all members. An error names the member that is gone, has given up, or has not come in time;
    // all members that still wait get the error too.
    Done all_gather(MemberGroup &group, const void *mine, void *all, size_t bytes);
    // Returns peer_lost if a member is gone, and the error with which a member has given up.
    Done check(const MemberGroup &group);
    // Tells the members that this rank has given up, also before it has begun. An exchange that
    // fails has done so.
    void abandon(const MemberGroup &group, const Error &error);

    using Bytes = std::vector<std::byte>;
    struct Proposal {
        uint32_t rank = 0;
        Bytes payload;
    };
    // Returns an error if this rank cannot agree with another rank's proposal.
    using Validator = std::function<Done(const Proposal &theirs)>;
    // Makes the decision from the proposals of all members that are not gone.
    using Decide = std::function<Bytes(const std::vector<Proposal> &proposals)>;
    // Returns the same bytes on all members that are not gone; `mine` is this rank's proposal. If a
    // member makes a call of the communicator instead, the communicator fails on all ranks, unless
    // it has failed before. The members are in the order of their ranks. Their list must be equal
    // on all of them, unless a validator rejects the proposals that make the lists differ. After an
    // error there is no agreement, and the caller may try again.
    Result<Bytes> agree(const MemberGroup &group, const Bytes &mine, const Validator &validate,
                        const Decide &decide);
    // Number of agreements reached so far, as far as this rank knows.
    uint64_t agreements() const { return agreements_; }

private:
    // Numbers of the seqlock records. Shares use two of them in turn: `share_record` and the next,
    // those of groups apart `apart_share_record` and the one behind it.
    enum RecordKind : uint32_t {
        vote_record,
        decision_record,
        share_record,
        apart_share_record = share_record + 2
    };
    static_assert(apart_share_record + 2 == records_kept);
    static uint32_t first_share_record(const MemberGroup &group) {
        return group.is_apart ? apart_share_record : share_record;
    }
    struct Vote {
        uint64_t number = 0; // of the agreement
        uint32_t leader = 0;
        uint32_t attempt = 0;
        bool is_given_up = false; // the voter has given up this attempt
        EndedCalls ended{};       // of the voter
        std::vector<bool> gone{}; // by rank
        Bytes payload{};
    };
    using Votes = std::vector<std::optional<Vote>>; // by member
    struct Decision {
        uint64_t number = 0;
        uint32_t leader = 0;
        Bytes bytes;
    };

    void publish(const MemberGroup &group, uint32_t record, std::span<const std::byte> bytes);
    void flush_records() const {
        if (remote_) remote_->flush_records();
    }
    void look(const MemberGroup &group);
    Error lost(const MemberGroup &group, uint32_t rank) const;

    Done exchange(MemberGroup &group, std::span<const std::byte> mine, std::byte *all,
                  size_t stride);
    Result<bool> take_share(const MemberGroup &group, uint32_t member,
                            std::span<std::byte> to) const;
    std::optional<Error> abandonment(const MemberGroup &group, uint32_t member) const;
    Error for_others(const MemberGroup &group, const Error &error) const;

    Result<Bytes> decide_with(const MemberGroup &group, const Bytes &mine,
                              const Validator &validate, const Decide &decide);
    Votes read_votes(const MemberGroup &group) const;
    Done merge_gone(const MemberGroup &group, const Votes &votes);
    Done check_calls(const MemberGroup &group, const Votes &votes);
    Done compare_ended(const MemberGroup &group, const Votes &votes);
    Error give_up(const MemberGroup &group, uint32_t attempt, const Error &error);
    void publish_vote(const MemberGroup &group, uint32_t leader, bool is_given_up,
                      const Bytes &payload, Bytes &latest);
    bool has_finished(uint32_t rank) const;
    uint32_t leader(const MemberGroup &group) const;
    Done adopt_latest_attempt(const MemberGroup &group, const Votes &votes,
                              const Validator &validate);
    std::optional<Vote> vote_of(uint32_t rank) const;
    std::optional<Decision> decision_of(uint32_t rank) const;
    Result<std::optional<Decision>> find_decision(const MemberGroup &group, uint32_t leader) const;
    Result<ArrivalState> count(const MemberGroup &group, const Votes &votes, uint32_t leader,
                               const Validator &validate, std::vector<Proposal> &proposals) const;
    void adopt(const MemberGroup &group, const Decision &decision);
    void await_acks(const MemberGroup &group);

    const PeerTable &peer_table_;
    const CallHistory &history_;
    FailureDetector &detector_;
    RemoteRanks *remote_;
    const WaitWarning warning_;
    std::vector<bool> gone_; // by rank, as far as this rank knows
    uint64_t agreements_ = 0;
    uint32_t attempt_ = 0; // of the next agreement; errors have ended the attempts before
    uint64_t version_ = 0; // of this rank's latest record
    // Which of the two records has this rank's latest share; the second number is that of groups
    // apart.
    uint32_t last_turns_[2] = {0, 0};
    bool knows_difference_ = false; // has returned that the ended calls differed
};

} // namespace qccl
