// The rules of a rendezvous: which ranks may join, when an all-gather is complete, and which error
// a departure or a passed deadline means. Long lists of missing ranks are cut short.
#include "bootstrap/rendezvous_state.hpp"

#include <algorithm>

namespace qccl {

// ---- Missing ranks

Missing missing_ranks(const std::vector<bool> &came) {
    static constexpr size_t most_named = 8;
    const auto total = static_cast<size_t>(std::count(came.begin(), came.end(), false));
    const size_t named = total > most_named + 1 ? most_named : total;
    Missing missing;
    size_t seen = 0;
    for (size_t rank = 0; rank < came.size() && seen < named; rank++) {
        if (came[rank]) continue;
        const bool is_last = ++seen == total;
        if (missing.first == Error::no_rank) missing.first = static_cast<int32_t>(rank);
        missing.text += seen == 1 ? (total == 1 ? "rank " : "ranks ") : is_last ? " and " : ", ";
        missing.text += std::to_string(rank);
    }
    if (seen < total) missing.text += " and " + std::to_string(total - seen) + " more";
    return missing;
}

uint32_t lowest_rank(const std::vector<bool> &came) {
    return static_cast<uint32_t>(std::find(came.begin(), came.end(), true) - came.begin());
}

Error late_error(const Missing &missing, uint32_t size, std::chrono::nanoseconds timeout) {
    const double seconds = std::chrono::duration<double>(timeout).count();
    return Error::make(Code::timeout, "%s of %u did not come within %g s", missing.text.c_str(),
                       size, seconds)
        .at_rank(missing.first);
}

// ---- One all-gather

Done Round::add(uint32_t rank, std::span<const std::byte> mine) {
    if (!has_begun()) {
        first_ = rank;
        bytes_ = mine.size();
        gathered_.resize(bytes_ * came_.size());
    }
    if (mine.size() != bytes_)
        return Error::make(Code::mismatch, "rank %u gives %zu bytes to an exchange, rank %u %zu",
                           rank, mine.size(), first_, bytes_)
            .at_rank(rank)
            .compared(static_cast<int64_t>(bytes_), static_cast<int64_t>(mine.size()));
    if (came_[rank])
        return Error::make(Code::invalid_usage, "rank %u gives twice to one exchange", rank)
            .at_rank(rank);

    std::copy(mine.begin(), mine.end(),
              gathered_.begin() + static_cast<std::ptrdiff_t>(rank * bytes_));
    came_[rank] = true;
    count_++;
    return {};
}

Payload Round::take() {
    auto whole = std::make_shared<const std::vector<std::byte>>(std::move(gathered_));
    gathered_ = {};
    std::fill(came_.begin(), came_.end(), false);
    count_ = 0;
    return whole;
}

// ---- The whole rendezvous

std::optional<Error> RendezvousState::refusal(const Claim &claim, const std::string &where) const {
    if (claim.size == 0 || claim.size > most_ranks)
        return invalid_argument("rank %u (%s) says that there are %u ranks: 1 to %u may be",
                                claim.rank, where.c_str(), claim.size, most_ranks)
            .at_rank(claim.rank)
            .compared(most_ranks, claim.size);
    if (claim.rank >= claim.size)
        return invalid_argument("rank %u of %u (%s) cannot be: ranks count from 0 to %u",
                                claim.rank, claim.size, where.c_str(), claim.size - 1)
            .at_rank(claim.rank)
            .compared(claim.size, claim.rank);
    if (size_ > 0 && claim.size != size_)
        return Error::make(Code::mismatch,
                           "rank %u (%s) says that there are %u ranks, rank %u says %u", claim.rank,
                           where.c_str(), claim.size, first_, size_)
            .at_rank(claim.rank)
            .compared(size_, claim.size);
    if (size_ > 0 && has_joined_[claim.rank])
        return invalid_argument("two processes are rank %u of %u: %s and %s", claim.rank, size_,
                                where_[claim.rank].c_str(), where.c_str())
            .at_rank(claim.rank)
            .compared(claim.rank, claim.rank);
    return std::nullopt;
}

Done RendezvousState::join(const Claim &claim, const std::string &where) {
    if (failure_) return *failure_;
    if (const auto error = refusal(claim, where)) {
        // If all ranks have joined, one more process does not disturb them. For the other ranks a
        // wrong argument of this rank is a remote error.
        Error told = *error;
        if (told.code == Code::invalid_argument) told.code = Code::remote_error;
        if (!is_complete()) fail(told);
        return *error;
    }
    if (size_ == 0) {
        size_ = claim.size;
        first_ = claim.rank;
        has_joined_.resize(size_);
        has_departed_.resize(size_);
        where_.resize(size_);
        claims_.resize(size_);
        round_.emplace(size_);
    }
    has_joined_[claim.rank] = true;
    where_[claim.rank] = where;
    claims_[claim.rank] = claim;
    joined_++;
    if (is_complete()) end_wait();
    return {};
}

bool RendezvousState::has_member(const Claim &claim) const {
    if (claim.rank >= size_ || !has_joined_[claim.rank]) return false;
    const Claim &joined = claims_[claim.rank];
    return joined.process == claim.process && joined.process_namespace == claim.process_namespace;
}

void RendezvousState::contribute(uint32_t rank, std::span<const std::byte> mine, TimePoint now) {
    if (failure_) return;
    if (!is_complete())
        return fail(Error::make(Code::internal_error, "rank %u came to an exchange too early", rank)
                        .at_rank(rank));
    if (mine.size() > most_contributed_bytes || mine.size() * size_ > most_gathered_bytes)
        return fail(
            invalid_argument("rank %u gives %zu bytes to an exchange: too many", rank, mine.size())
                .at_rank(rank));
    if (!round_->has_begun()) deadline_ = deadline_after(now, timeout_);
    if (const Done added = round_->add(rank, mine); !added) return fail(added.error());
    check_for_departed();
}

Payload RendezvousState::take_result() {
    if (failure_ || !round_ || !round_->is_complete()) return nullptr;
    end_wait();
    return round_->take();
}

void RendezvousState::depart(uint32_t rank, Farewell farewell) {
    has_departed_[rank] = true;
    departed_++;
    const bool has_given_up = farewell == Farewell::give_up || !is_complete();
    const Missing waited_for = missing();
    if (farewell == Farewell::none) {
        fail(Error::make(Code::peer_lost, "rank %u (%s) died", rank, where_[rank].c_str())
                 .at_rank(rank));
    } else if (has_given_up && waited_for.first != Error::no_rank) {
        fail(Error::make(Code::timeout, "rank %u gave up waiting for %s of %u", rank,
                         waited_for.text.c_str(), size_)
                 .at_rank(waited_for.first));
    } else if (has_given_up) {
        fail(Error::make(Code::timeout,
                         "rank %u gave up before the result of an exchange had reached it", rank)
                 .at_rank(rank));
    } else if (round_->has_begun()) {
        check_for_departed();
    }
}

// Fails a round that lacks a rank that has left: such a round can never be complete.
void RendezvousState::check_for_departed() {
    for (uint32_t rank = 0; rank < size_; rank++)
        if (has_departed_[rank])
            fail(Error::make(Code::peer_lost,
                             "rank %u left before the exchange that rank %u waits in", rank,
                             round_->first())
                     .at_rank(rank));
}

Missing RendezvousState::missing() const {
    return is_in_round() ? round_->missing() : missing_ranks(has_joined_);
}

bool RendezvousState::elect(uint32_t rank) {
    if (has_elected_ || missing().first == Error::no_rank) return false;
    has_elected_ = rank == (is_in_round() ? round_->lowest() : lowest_rank(has_joined_));
    return has_elected_;
}

void RendezvousState::expire(TimePoint now) {
    if (failure_ || now < deadline_) return;
    if (size_ == 0) // no rank waits, so there is none to tell
        return fail(Error::make(Code::timeout, "no rank came"));
    fail(late_error(missing(), size_, timeout_));
}

} // namespace qccl
