// Both ends of a mailbox. The stamp of a mail is its number: a mail of an earlier round never looks
// like this one.
#include "transport/mailbox.hpp"

#include <algorithm>

namespace qccl {

Mail *Outbound::next() {
    const uint64_t most = party_.mine().mails();
    if (posted_ - taken_ == most) {
        taken_ = party_.segments[peer_].taken(party_.rank).count.load(std::memory_order_acquire);
        if (posted_ - taken_ == most) return nullptr;
    }
    return &party_.mine().mail(peer_, posted_);
}

void Outbound::post() {
    party_.mine().mail(peer_, posted_).stamp.store(posted_ + 1, std::memory_order_release);
    posted_++;
    party_.wake(peer_);
}

void Inbound::take() {
    taken_++;
    party_.mine().taken(peer_).count.store(taken_, std::memory_order_release);
    party_.wake(peer_);
}

std::optional<Wire> Inbound::unshelve(MessageTag tag) {
    const auto found =
        std::find_if(shelf_.begin(), shelf_.end(), [&](const Early &e) { return e.tag == tag; });
    if (found == shelf_.end()) return std::nullopt;
    const Wire wire = found->wire;
    *found = shelf_.back();
    shelf_.pop_back();
    return wire;
}

std::optional<Wire> Inbound::unshelve_any() {
    if (shelf_.empty()) return std::nullopt;
    return unshelve(shelf_.back().tag);
}

} // namespace qccl
