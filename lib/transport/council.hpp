// What ranks of a communicator do beside its calls, whatever has become of those: some of them
// exchange bytes, and all that are left agree, though any of them may die meanwhile. Knows not on
// what.
//
// An agreement has a number, the same on all ranks. Every rank votes. The lowest member that a rank
// does not know to be gone is its leader, whom its vote names; a leader that has the votes of all
// who are not gone, with itself as their leader, decides. Whoever takes up a decision says it on.
// An earlier leader's is taken up from the present one alone: which hears of it before it could
// decide otherwise, because those who have taken one up do not vote for it any more.
#pragma once

#include "transport/circle.hpp"
#include "transport/courier.hpp"
#include "transport/vigil.hpp"

namespace qccl {

class Council {
public:
    // `courier`: null where all ranks are near.
    Council(const Party &party, const CallHistory &history, Vigil &vigil, Courier *courier,
            CircleManners manners)
        : party_(party), history_(history), vigil_(vigil), courier_(courier),
          manners_(std::move(manners)), gone_(party.size()) {}

    // Of `bytes` bytes, equal on all members. An error, which names the member that is gone, has
    // given up, or has not come in time, is heard by all who still wait.
    Done all_gather(Circle &circle, const void *mine, void *all, size_t bytes);
    // An error if a member is gone.
    Done check(const Circle &circle);

    using Bytes = std::vector<std::byte>;
    struct Vote {
        uint32_t rank = 0;
        Bytes said;
    };
    // What this rank has against another's vote.
    using Objection = std::function<Done(const Vote &theirs)>;
    // Of the votes of all members that are not gone.
    using Decision = std::function<Bytes(const std::vector<Vote> &votes)>;
    // All members that are not gone get the same bytes. A member that makes a call of the
    // communicator instead fails that on all ranks, unless it has failed before. The members, whose
    // order is that of their ranks, need be equal on all of them only if nobody objects to what
    // makes them differ. After an error the agreement has not been reached, and may be tried again.
    Result<Bytes> agree(const Circle &circle, const Bytes &mine, const Objection &object,
                        const Decision &decide);
    // That have been reached, as far as this rank knows.
    uint64_t agreements() const { return agreements_; }

private:
    // Numbers of notices; a share's is one of two, in turns.
    enum Notice : uint32_t { vote, decision, share };
    struct Ballot {
        uint64_t number = 0; // of the agreement
        uint32_t leader = 0;
        uint32_t attempt = 0;
        bool is_given_up = false; // the attempt, by the voter
        EndedCalls ended{};       // of the voter
        std::vector<bool> gone{}; // by rank
        Bytes said{};
    };
    using Ballots = std::vector<std::optional<Ballot>>; // by member
    struct Resolution {
        uint64_t number = 0;
        uint32_t leader = 0;
        Bytes bytes;
    };

    void publish(const Circle &circle, uint32_t notice, std::span<const std::byte> bytes);
    void see_off() const {
        if (courier_) courier_->see_off();
    }
    void look(const Circle &circle);
    Error lost(const Circle &circle, uint32_t rank) const;

    Done exchange(Circle &circle, std::span<const std::byte> mine, std::byte *all, size_t stride);
    Result<bool> take_share(const Circle &circle, uint32_t member, std::span<std::byte> to) const;
    std::optional<Error> abandonment(const Circle &circle, uint32_t member) const;
    void abandon(const Circle &circle, const Error &error);

    Result<Bytes> decide_with(const Circle &circle, const Bytes &mine, const Objection &object,
                              const Decision &decide);
    Ballots read_ballots(const Circle &circle) const;
    Done hear_of_gone(const Circle &circle, const Ballots &ballots);
    Done check_calls(const Circle &circle, const Ballots &ballots);
    Done compare_ended(const Circle &circle, const Ballots &ballots);
    Error give_up(const Circle &circle, uint32_t attempt, const Error &error);
    void publish_vote(const Circle &circle, uint32_t leader, bool is_given_up, const Bytes &said,
                      Bytes &latest);
    bool has_finished(uint32_t rank) const;
    uint32_t leader(const Circle &circle) const;
    Done join_attempt(const Circle &circle, const Ballots &ballots, const Objection &object);
    std::optional<Ballot> ballot_of(uint32_t rank) const;
    std::optional<Resolution> resolution_of(uint32_t rank) const;
    Result<std::optional<Resolution>> find_resolution(const Circle &circle, uint32_t leader) const;
    Result<Attendance> count(const Circle &circle, const Ballots &ballots, uint32_t leader,
                             const Objection &object, std::vector<Vote> &votes) const;
    void take_up(const Circle &circle, const Resolution &resolution);
    void await_echo(const Circle &circle);

    const Party &party_;
    const CallHistory &history_;
    Vigil &vigil_;
    Courier *courier_;
    const CircleManners manners_;
    std::vector<bool> gone_; // by rank, as far as this one knows
    uint64_t agreements_ = 0;
    uint32_t attempt_ = 0;          // at the next: errors have ended those before
    uint64_t version_ = 0;          // of this rank's latest notice
    bool knows_difference_ = false; // has returned that ended calls differed
};

} // namespace qccl
