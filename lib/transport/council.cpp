// Exchanges by notices: each rank writes its own, and looks at the others' until it has them all.
#include "transport/council.hpp"

#include "transport/notice.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

namespace {

// Stands before what a rank gives.
struct ShareHead {
    uint64_t topic = 0;
    uint64_t round = 0;
    uint64_t is_abandoned = 0; // what follows is the Error why
};

} // namespace

void Council::publish(const Circle &circle, uint32_t notice, std::span<const std::byte> bytes) {
    write_notice(party_.mine(), notice, ++version_, bytes);
    if (!courier_) return;
    std::vector<uint32_t> far;
    for (const uint32_t member : circle.members)
        if (!party_.is_near(member) && !gone_[member]) far.push_back(member);
    courier_->post_notice(notice, version_, bytes, far);
}

// Whoever is gone stays so. What it said before comes another way, and counts: so what has come is
// taken in last.
void Council::look(const Circle &circle) {
    if (courier_) courier_->progress(); // which tells who is out of reach
    vigil_.listen();
    for (const uint32_t rank : circle.members)
        if (rank != party_.rank && vigil_.is_gone(rank)) gone_[rank] = true;
    while (courier_ && courier_->progress()) {}
}

Error Council::lost(const Circle &circle, uint32_t rank) const {
    return Error::make(Code::peer_lost, "rank %u (pid %" PRId64 ") died or left during %s", rank,
                       party_.pids[rank], circle.what)
        .at_rank(rank);
}

Done Council::check(const Circle &circle) {
    look(circle);
    for (const uint32_t member : circle.members)
        if (gone_[member]) return lost(circle, member);
    return {};
}

Done Council::all_gather(Circle &circle, const void *mine, void *all, size_t bytes) {
    const size_t most = party_.mine().notice_words(share).size_bytes() - sizeof(ShareHead);
    // What is larger goes in parts.
    for (size_t at = 0; at == 0 || at < bytes; at += most) {
        const std::span<const std::byte> part(static_cast<const std::byte *>(mine) + at,
                                              std::min(most, bytes - at));
        const Done done = exchange(circle, part, static_cast<std::byte *>(all) + at, bytes);
        if (done) continue;
        abandon(circle, done.error());
        return done;
    }
    return {};
}

Done Council::exchange(Circle &circle, std::span<const std::byte> mine, std::byte *all,
                       size_t stride) {
    const ShareHead head{.topic = circle.topic, .round = ++circle.round};
    // Who has come to this round needs nothing that was given two rounds before.
    publish(circle, share + circle.round % 2, joined(head, mine));
    CircleWait wait(party_, circle, manners_);
    std::vector<bool> has(circle.members.size());
    for (;;) {
        look(circle); // first: what a member gave before it was gone counts
        Attendance found;
        for (size_t i = 0; i < has.size(); i++) {
            const uint32_t member = circle.members[i];
            if (const auto why = abandonment(circle, member)) return *why;
            if (!has[i]) {
                QCCL_TRY(has[i], take_share(circle, member, {all + i * stride, mine.size()}));
            }
            if (has[i])
                found.meet(member, party_.rank);
            else if (gone_[member])
                return lost(circle, member);
            else
                found.miss(member);
        }
        if (!found.missing) break;
        QCCL_TRY(wait.step(found));
    }
    see_off();
    return {};
}

// False: the member has not come to this round.
Result<bool> Council::take_share(const Circle &circle, uint32_t member,
                                 std::span<std::byte> to) const {
    for (const uint32_t turn : {0U, 1U}) {
        const auto notice = read_notice(party_.segments[member], share + turn);
        const auto head = notice ? head_of<ShareHead>(*notice) : std::nullopt;
        if (!head || head->topic != circle.topic) continue;
        if (head->is_abandoned != 0 || head->round != circle.round) continue;
        const auto rest = std::span(*notice).subspan(sizeof *head);
        if (rest.size() != to.size())
            return Error::make(Code::mismatch, "%s: rank %u gives %zu bytes, rank %u gives %zu",
                               circle.what, member, rest.size(), party_.rank, to.size())
                .at_rank(member);
        std::copy(rest.begin(), rest.end(), to.begin());
        return true;
    }
    return false;
}

// Why the member has given up, also after it has given its share.
std::optional<Error> Council::abandonment(const Circle &circle, uint32_t member) const {
    Error error;
    for (const uint32_t turn : {0U, 1U}) {
        const auto notice =
            read_notice(party_.segments[member], share + turn, sizeof(ShareHead) + sizeof error);
        const auto head = notice ? head_of<ShareHead>(*notice) : std::nullopt;
        if (!head || head->topic != circle.topic || head->is_abandoned == 0) continue;
        if (notice->size() == sizeof *head + sizeof error)
            std::memcpy(&error, notice->data() + sizeof *head, sizeof error);
        return as_heard(error, member, party_.size());
    }
    return std::nullopt;
}

void Council::abandon(const Circle &circle, const Error &error) {
    const ShareHead head{.topic = circle.topic, .is_abandoned = 1};
    publish(circle, share + (circle.round + 1) % 2,
            joined(head, std::as_bytes(std::span(&error, 1))));
    see_off();
}

} // namespace qccl
