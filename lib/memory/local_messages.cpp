// Both ends of a mailbox, and both sides of the table of windows. A descriptor's stamp is 1 + its
// number, so a descriptor of an earlier round of the ring never looks like the present one.
//
// Windows: a peer counts itself among the holders and then looks whether the offer still stands.
// The owner withdraws the offer and then looks whether there are holders. So one of the two sees
// the other's store.
#include "memory/local_messages.hpp"

#include <algorithm>

namespace qccl {

// ---- Mailboxes

Mail *Outbound::next() {
    const uint64_t most = peer_table_.mine().mails();
    if (posted_ - taken_ == most) {
        taken_ = peer_table_.segments[peer_]
                     .tail(peer_table_.rank)
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
    peer_table_.mine().tail(peer_).count.store(taken_, std::memory_order_release);
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

// ---- Windows

bool Windows::expose(const ExportedRegion &memory) {
    const auto found = find_exposed(memory.base);
    if (found != exposed_.end()) {
        found->times++;
    } else {
        exposed_.push_back({.memory = memory});
        offer(exposed_.back());
    }
    return exposed_.size() <= windows_kept;
}

std::vector<Windows::Exposed>::iterator Windows::find_exposed(const std::byte *base) {
    return std::find_if(exposed_.begin(), exposed_.end(),
                        [=](const Exposed &exposed) { return exposed.memory.base == base; });
}

void Windows::withdraw(const std::byte *base) {
    const auto found = find_exposed(base);
    if (found == exposed_.end() || --found->times != 0) return;
    if (found->window != no_window) withdraw_offer(found->window);
    exposed_.erase(found);
}

// Returns false if no window is free. If the program has closed the file, peers never hear of the
// memory.
bool Windows::offer(Exposed &exposed) {
    const std::optional<uint32_t> number = find_free();
    if (!number) return false;
    exposed.is_waiting = false;
    if (!is_open(exposed.memory.file)) return true;
    OfferedWindow &window = peer_table_.mine().window(*number);
    window.file = exposed.memory.file;
    window.readers.store(0, std::memory_order_relaxed);
    window.offer.store(++offers_, std::memory_order_seq_cst);
    exposed.window = *number;
    announce();
    return true;
}

std::optional<uint32_t> Windows::find_free() const {
    for (uint32_t number = 0; number < windows_kept; number++) {
        const OfferedWindow &window = peer_table_.mine().window(number);
        if (window.offer.load(std::memory_order_relaxed) == 0 &&
            window.holders.load(std::memory_order_seq_cst) == 0)
            return number;
    }
    return std::nullopt;
}

void Windows::withdraw_offer(uint32_t window) {
    peer_table_.mine().window(window).offer.store(0, std::memory_order_seq_cst);
    announce();
}

void Windows::announce() const {
    peer_table_.mine().status().offers.fetch_add(1, std::memory_order_release);
}

void Windows::refresh() {
    for (const uint32_t peer : peer_table_.local_ranks) {
        PeerViews &views = views_[peer];
        const uint64_t offers =
            peer_table_.segments[peer].status().offers.load(std::memory_order_acquire);
        if (peer == peer_table_.rank || views.offers == offers) continue;
        views.offers = offers;
        for (uint32_t number = 0; number < windows_kept; number++)
            refresh_window(peer, number, views.windows[number]);
    }
    for (Exposed &exposed : exposed_)
        if (exposed.is_waiting && !offer(exposed)) return;
}

void Windows::refresh_window(uint32_t peer, uint32_t number, View &view) const {
    OfferedWindow &window = peer_table_.segments[peer].window(number);
    const uint64_t offer = window.offer.load(std::memory_order_acquire);
    if (offer == view.offer) return;
    if (view.mapping.base()) {
        view.mapping = Mapping();
        window.holders.fetch_sub(1, std::memory_order_release);
    }
    view.offer = offer;
    if (offer == 0) return;
    window.holders.fetch_add(1, std::memory_order_seq_cst);
    if (window.offer.load(std::memory_order_seq_cst) == offer)
        if (auto mapping = map_file_of(peer_table_.pids[peer], window.file)) {
            view.mapping = std::move(*mapping);
            window.readers.fetch_add(1, std::memory_order_release);
            return;
        }
    window.holders.fetch_sub(1, std::memory_order_release);
}

std::span<const std::byte> Windows::memory(uint32_t owner, uint32_t number) const {
    if (number == device_window)
        return owner < device_memory_.size() ? device_memory_[owner] : std::span<std::byte>();
    if (number >= windows_kept) return {};
    if (owner != peer_table_.rank) {
        const Mapping &mapping = views_[owner].windows[number].mapping;
        return {mapping.base(), mapping.bytes()};
    }
    for (const Exposed &exposed : exposed_)
        if (exposed.window == number) return {exposed.memory.base, exposed.memory.file.bytes};
    return {};
}

ZeroCopyRef Windows::refer_to(const void *memory, size_t bytes) const {
    const auto *const data = static_cast<const std::byte *>(memory);
    if (peer_table_.local_ranks.size() == 1 && peer_table_.has_remote())
        return {.data = data, .bytes = bytes};
    for (const Exposed &exposed : exposed_) {
        const auto begin = reinterpret_cast<uintptr_t>(exposed.memory.base);
        const auto from = reinterpret_cast<uintptr_t>(data);
        if (from < begin || from - begin > exposed.memory.file.bytes) continue;
        const uint64_t rest = exposed.memory.file.bytes - (from - begin);
        if (rest < bytes || exposed.window == no_window) return {};
        const uint32_t readers =
            peer_table_.mine().window(exposed.window).readers.load(std::memory_order_acquire);
        if (readers + 1 != peer_table_.local_ranks.size()) return {};
        return {.data = data, .bytes = rest, .window = exposed.window};
    }
    return {};
}

ZeroCopyRef Windows::find(uint32_t owner, uint32_t number, uint64_t offset) const {
    const std::span<const std::byte> window = memory(owner, number);
    if (window.empty() || offset > window.size()) return {};
    return {.data = window.data() + offset, .bytes = window.size() - offset, .window = number};
}

uint64_t Windows::offset(uint32_t owner, const ZeroCopyRef &zero_copy) const {
    return reinterpret_cast<uintptr_t>(zero_copy.data) -
           reinterpret_cast<uintptr_t>(memory(owner, zero_copy.window).data());
}

} // namespace qccl
