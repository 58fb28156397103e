// Both ends of a mailbox. A descriptor's stamp is 1 + its number, so a descriptor of an earlier
// round of the ring never looks like the present one.
#include "transport/mailbox.hpp"

#include <algorithm>

namespace qccl {

Mail *Outbound::next() {
    const uint64_t most = peer_table_.mine().mails();
    if (posted_ - taken_ == most) {
        taken_ = peer_table_.segments[peer_]
                     .taken(peer_table_.rank)
                     .count.load(std::memory_order_acquire);
        if (posted_ - taken_ == most) return nullptr;
    }
    return &peer_table_.mine().mail(peer_, posted_);
}

void Outbound::post() {
    peer_table_.mine().mail(peer_, posted_).stamp.store(posted_ + 1, std::memory_order_release);
    posted_++;
    peer_table_.wake(peer_);
}

void Inbound::take() {
    taken_++;
    peer_table_.mine().taken(peer_).count.store(taken_, std::memory_order_release);
    peer_table_.wake(peer_);
}

std::optional<MessageView> Inbound::take_unexpected(MessageTag tag) {
    const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                    [&](const Early &e) { return e.tag == tag; });
    if (found == unexpected_.end()) return std::nullopt;
    const MessageView view = found->view;
    *found = unexpected_.back();
    unexpected_.pop_back();
    return view;
}

std::optional<MessageView> Inbound::take_any_unexpected() {
    if (unexpected_.empty()) return std::nullopt;
    return take_unexpected(unexpected_.back().tag);
}

} // namespace qccl
