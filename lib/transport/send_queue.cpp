// Data messages to other hosts: each alone and from where its bytes lie, or, if it is small and
// more messages follow, as a copy in a batch.
#include "transport/remote_endpoint.hpp"

#include <cstring>

namespace qccl {

namespace {

// Names what is given back when a message has gone: a slot of a rank.
constexpr uint64_t slot_token(uint32_t origin, uint32_t slot) {
    return (uint64_t{origin} << 32 | slot) + 1;
}

void append(std::vector<std::byte> &bytes, const void *data, size_t count) {
    const auto *const first = static_cast<const std::byte *>(data);
    bytes.insert(bytes.end(), first, first + count);
}

} // namespace

bool RemoteEndpoint::send(uint32_t peer, MessageTag tag, const MessageView &view,
                          Transport::Sends when) {
    const std::lock_guard guard(mutex_);
    const uint64_t entry_bytes = sizeof(BatchEntry) + view.bytes + view.zero_copy.bytes;
    const bool fits = batch_.peer == peer && batch_.bytes.size() + entry_bytes <= most_batch_bytes;
    if (!fits) flush_locked();
    PeerState &state = peer_states_[peer];
    state.sent_bytes += view.bytes + view.zero_copy.bytes;
    const bool waits = when == Transport::Sends::with_next && entry_bytes <= most_batch_bytes;
    if (waits || !batch_.bytes.empty())
        add_to_batch(peer, tag, view);
    else
        post_data(peer, tag, view);
    if (!waits) flush_locked();
    return !state.is_lost;
}

void RemoteEndpoint::post_data(uint32_t peer, MessageTag tag, const MessageView &view) {
    peer_table_.segments[view.origin].readers(view.slot).count.fetch_add(1,
                                                                         std::memory_order_relaxed);
    MessageHeader message = header_of_call(MessageKind::data);
    message.tag = tag;
    const NetworkPart parts[] = {{view.data, view.bytes},
                                 {view.zero_copy.data, view.zero_copy.bytes}};
    unsent_data_++;
    post(peer, message, std::span(parts).first(view.zero_copy.data ? 2 : 1),
         slot_token(view.origin, view.slot), is_eager(peer_states_[peer]));
}

void RemoteEndpoint::on_data_sent(uint64_t token) {
    unsent_data_--;
    const auto origin = static_cast<uint32_t>((token - 1) >> 32);
    const auto slot = static_cast<uint32_t>(token - 1);
    const uint32_t before =
        peer_table_.segments[origin].readers(slot).count.fetch_sub(1, std::memory_order_release);
    if (before == 1 && origin != peer_table_.rank) peer_table_.wake(origin);
}

void RemoteEndpoint::add_to_batch(uint32_t peer, MessageTag tag, const MessageView &view) {
    if (batch_.bytes.empty()) {
        batch_.peer = peer;
        batch_.call = history_.current();
        batch_.hash = history_.hash();
    }
    batch_.bytes.reserve(most_batch_bytes); // so that no allocation fails in the middle of an entry
    const BatchEntry entry{.tag = tag, .bytes = view.bytes + view.zero_copy.bytes};
    append(batch_.bytes, &entry, sizeof entry);
    append(batch_.bytes, view.data, view.bytes);
    append(batch_.bytes, view.zero_copy.data, view.zero_copy.bytes);
}

void RemoteEndpoint::flush() {
    const std::lock_guard guard(mutex_);
    flush_locked();
}

void RemoteEndpoint::flush_locked() {
    if (batch_.bytes.empty()) return;
    const uint64_t token = copy_token | ++copies_;
    UnsentCopy &unsent = unsent_copies_[token];
    unsent.bytes.swap(batch_.bytes);
    unsent.messages = 1;
    unsent.is_data = true;
    unsent_data_++;
    MessageHeader head = header(MessageKind::batch);
    head.call = batch_.call;
    head.hash = batch_.hash;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    post(batch_.peer, head, std::span(&part, 1), token, is_eager(peer_states_[batch_.peer]));
}

} // namespace qccl
