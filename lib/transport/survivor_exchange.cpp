// Exchanges over seqlock records: each rank writes its own record and looks at the others' until it
// has them all.
#include "transport/survivor_exchange.hpp"

#include "transport/seqlock_record.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

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
    std::vector<uint32_t> far;
    for (const uint32_t member : group.members)
        if (!peer_table_.is_local(member) && !gone_[member]) far.push_back(member);
    remote_->send_record(record, version_, bytes, far);
}

// Notes which members are gone; a member that is gone stays gone. What a member sent before that
// comes another way and still counts, so the network is progressed once more at the end.
void SurvivorExchange::look(const MemberGroup &group) {
    if (remote_) remote_->progress(); // tells which ranks are unreachable
    detector_.listen();
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
    for (const uint32_t member : group.members)
        if (gone_[member]) return lost(group, member);
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
        abandon(group, done.error());
        return done;
    }
    return {};
}

Done SurvivorExchange::exchange(MemberGroup &group, std::span<const std::byte> mine, std::byte *all,
                                size_t stride) {
    const ShareHead head{.topic = group.topic, .round = ++group.round};
    // This overwrites the share of two rounds before. No member needs that share, since all of them
    // have come to the round in between.
    publish(group, share_record + group.round % 2, joined(head, mine));
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
                found.meet(member, peer_table_.rank);
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
        const auto record = read_record(peer_table_.segments[member], share_record + turn);
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
        const auto record = read_record(peer_table_.segments[member], share_record + turn,
                                        sizeof(ShareHead) + sizeof error);
        const auto head = record ? head_of<ShareHead>(*record) : std::nullopt;
        if (!head || head->topic != group.topic || head->is_abandoned == 0) continue;
        if (record->size() == sizeof *head + sizeof error)
            std::memcpy(&error, record->data() + sizeof *head, sizeof error);
        return sanitize_remote(error, member, peer_table_.size());
    }
    return std::nullopt;
}

void SurvivorExchange::abandon(const MemberGroup &group, const Error &error) {
    const ShareHead head{.topic = group.topic, .is_abandoned = 1};
    publish(group, share_record + (group.round + 1) % 2,
            joined(head, std::as_bytes(std::span(&error, 1))));
    flush_records();
}

} // namespace qccl
