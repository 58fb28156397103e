// Mail to other hosts: alone and from where it lies, or, where it is small and more follows, as a
// copy in a batch.
#include "transport/courier.hpp"

#include <cstring>

namespace qccl {

namespace {

// What is given back when a message has gone.
constexpr uint64_t slot_token(uint32_t origin, uint32_t slot) {
    return (uint64_t{origin} << 32 | slot) + 1;
}

void append(std::vector<std::byte> &bytes, const void *data, size_t count) {
    const auto *const first = static_cast<const std::byte *>(data);
    bytes.insert(bytes.end(), first, first + count);
}

} // namespace

bool Courier::send(uint32_t peer, MessageTag tag, const Wire &wire, Transport::Sends when) {
    const std::lock_guard guard(mutex_);
    const uint64_t entry_bytes = sizeof(BatchEntry) + wire.bytes + wire.loan.bytes;
    const bool fits = batch_.peer == peer && batch_.bytes.size() + entry_bytes <= most_batch_bytes;
    if (!fits) flush_locked();
    PenPal &pal = pen_pals_[peer];
    pal.mailed += wire.bytes + wire.loan.bytes;
    const bool waits = when == Transport::Sends::with_next && entry_bytes <= most_batch_bytes;
    if (waits || !batch_.bytes.empty())
        add_to_batch(peer, tag, wire);
    else
        post_mail(peer, tag, wire);
    if (!waits) flush_locked();
    return !pal.is_lost;
}

void Courier::post_mail(uint32_t peer, MessageTag tag, const Wire &wire) {
    party_.segments[wire.origin].readers(wire.slot).count.fetch_add(1, std::memory_order_relaxed);
    Letter mail = letter_of_call(LetterKind::mail);
    mail.tag = tag;
    const NetworkPart parts[] = {{wire.data, wire.bytes}, {wire.loan.data, wire.loan.bytes}};
    unsent_mail_++;
    post(peer, mail, std::span(parts).first(wire.loan.data ? 2 : 1),
         slot_token(wire.origin, wire.slot), is_welcome(pen_pals_[peer]));
}

void Courier::sent_mail(uint64_t token) {
    unsent_mail_--;
    const auto origin = static_cast<uint32_t>((token - 1) >> 32);
    const auto slot = static_cast<uint32_t>(token - 1);
    const uint32_t before =
        party_.segments[origin].readers(slot).count.fetch_sub(1, std::memory_order_release);
    if (before == 1 && origin != party_.rank) party_.wake(origin);
}

void Courier::add_to_batch(uint32_t peer, MessageTag tag, const Wire &wire) {
    if (batch_.bytes.empty()) {
        batch_.peer = peer;
        batch_.call = history_.current();
        batch_.hash = history_.hash();
    }
    batch_.bytes.reserve(most_batch_bytes); // so that no entry is left without its end
    const BatchEntry entry{.tag = tag, .bytes = wire.bytes + wire.loan.bytes};
    append(batch_.bytes, &entry, sizeof entry);
    append(batch_.bytes, wire.data, wire.bytes);
    append(batch_.bytes, wire.loan.data, wire.loan.bytes);
}

void Courier::flush() {
    const std::lock_guard guard(mutex_);
    flush_locked();
}

void Courier::flush_locked() {
    if (batch_.bytes.empty()) return;
    const uint64_t token = copy_token | ++copies_;
    UnsentCopy &unsent = unsent_copies_[token];
    unsent.bytes.swap(batch_.bytes);
    unsent.letters = 1;
    unsent.is_mail = true;
    unsent_mail_++;
    Letter head = letter(LetterKind::batch);
    head.call = batch_.call;
    head.hash = batch_.hash;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    post(batch_.peer, head, std::span(&part, 1), token, is_welcome(pen_pals_[batch_.peer]));
}

} // namespace qccl
