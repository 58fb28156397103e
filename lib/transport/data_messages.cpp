// The data messages of RemoteEndpoint. Runs under the endpoint's lock and does not wait for
// messages.
//
// A rank sends each message alone and from where its bytes lie, or, if the message is small and
// more follow, as a copy in a batch. A message from another host stays here from its arrival until
// this rank has consumed it: it waits for its receive, or lies in the receive's buffer.

#include "transport/remote_endpoint.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl {

// ---- Sending

namespace {

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
         SendToken::of_data_slot(view.origin, view.slot),
         is_eager(peer_states_[peer], view.bytes + view.zero_copy.bytes));
}

void RemoteEndpoint::on_data_sent(SendToken token) {
    unsent_data_--;
    const uint32_t before = peer_table_.segments[token.origin()]
                                .readers(token.slot())
                                .count.fetch_sub(1, std::memory_order_release);
    if (before == 1 && token.origin() != peer_table_.rank) peer_table_.wake(token.origin());
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
    const SendToken token = SendToken::of_copy(++copies_);
    UnsentCopy &unsent = unsent_copies_[copies_];
    unsent.bytes.swap(batch_.bytes);
    unsent.messages = 1;
    unsent.is_data = true;
    unsent_data_++;
    MessageHeader head = header(MessageKind::batch);
    head.call = batch_.call;
    head.hash = batch_.hash;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    post(batch_.peer, head, std::span(&part, 1), token,
         is_eager(peer_states_[batch_.peer], part.bytes));
}

// ---- Receiving

namespace {

struct BatchedMessage {
    MessageTag tag;
    std::span<const std::byte> bytes;
};

// Takes the first message off a batch. Nothing: the batch does not begin with a whole message.
std::optional<BatchedMessage> pop_front(std::span<const std::byte> &batch) {
    BatchEntry entry;
    if (batch.size() < sizeof entry) return std::nullopt;
    std::memcpy(&entry, batch.data(), sizeof entry);
    const auto behind = batch.subspan(sizeof entry);
    if (entry.bytes > behind.size()) return std::nullopt;
    batch = behind.subspan(entry.bytes);
    return BatchedMessage{entry.tag, behind.first(entry.bytes)};
}

bool is_valid_batch(std::span<const std::byte> batch) {
    if (batch.empty() || batch.size() > most_batch_bytes) return false;
    while (pop_front(batch)) {}
    return batch.empty();
}

} // namespace

bool RemoteEndpoint::has_matched_data_from(uint32_t peer) const {
    const std::lock_guard guard(mutex_);
    const auto is_of_peer = [&](const UnexpectedMessage &slot) { return slot.header.from == peer; };
    if (std::ranges::any_of(eager_pulls_, is_of_peer)) return true;
    return std::any_of(
        unexpected_[peer].begin(), unexpected_[peer].end(), [&](const UnexpectedMessage &message) {
            return message.is_matched && message.header.call.call == history_.current().call;
        });
}

RemoteEndpoint::Received RemoteEndpoint::receive(uint32_t peer, MessageTag tag,
                                                 const RecvBuffer &buffer) {
    const std::lock_guard guard(mutex_);
    UnexpectedQueue &queue = unexpected_[peer];
    if (queue.empty() && buffer.memory.size() >= Transport::long_message_bytes) progress_locked();
    const uint64_t call = history_.current().call;
    for (auto message = queue.begin(); message != queue.end(); ++message) {
        const MessageHeader &header = message->header;
        if (header.call.call != call) continue;
        if (header.hash != history_.hash())
            return {.state = ReceiveState::other_call, .call = call};
        if (header.tag != tag) continue;
        const uint64_t bytes = message->bytes;
        if (bytes > buffer.memory.size()) return {.state = ReceiveState::too_long, .bytes = bytes};
        message->is_matched = true;
        if (!message->is_here && !fill_buffer(*message, buffer)) {
            if (message->is_pulling) progress_locked();
            return {};
        }
        consume(*message);
        queue.erase(message);
        unexpected_count_--;
        return {.state = ReceiveState::here, .bytes = bytes};
    }
    post_receive(peer, tag, buffer);
    return {};
}

// The message enters the queue last, when no step can fail any more.
void RemoteEndpoint::take_data(const MessageHeader &header, const void *data, uint64_t bytes,
                               RendezvousHandle *handle) {
    UnexpectedQueue arrived(1);
    UnexpectedMessage &message = arrived.front();
    message.header = header;
    message.bytes = bytes;
    message.handle = handle;
    message.data = static_cast<const std::byte *>(data);
    if (!match_posted(message) && !handle) {
        message.early.reserve(bytes); // throws for an impossible size before it reads the data
        message.early.assign(message.data, message.data + bytes);
        message.data = message.early.data();
    }
    unexpected_[header.from].splice(unexpected_[header.from].end(), arrived);
    unexpected_count_++;
}

void RemoteEndpoint::take_batch(const MessageHeader &header, const void *data, uint64_t bytes,
                                RendezvousHandle *handle) {
    const std::span<const std::byte> batch(static_cast<const std::byte *>(data), data ? bytes : 0);
    MessageHeader message = header;
    message.kind = MessageKind::data;
    if (is_valid_batch(batch))
        for (auto rest = batch; const auto entry = pop_front(rest);) {
            message.tag = entry->tag;
            take_data(message, entry->bytes.data(), entry->bytes.size(), nullptr);
        }
    else
        (void)shared_error_.set_once(Error::make(Code::damaged_data,
                                                 "a batch of messages from rank %u is damaged",
                                                 header.from)
                                         .at_rank(header.from));
    if (handle) network_.discard(handle);
}

void RemoteEndpoint::post_receive(uint32_t peer, MessageTag tag, const RecvBuffer &buffer) {
    std::vector<PostedReceive> &posted = peer_states_[peer].posted;
    const auto is_it = [&](const PostedReceive &each) { return each.tag == tag; };
    if (std::any_of(posted.begin(), posted.end(), is_it)) return;
    posted.push_back({history_.current().call, history_.hash(), tag, buffer});
}

bool RemoteEndpoint::match_posted(UnexpectedMessage &message) {
    const MessageHeader &header = message.header;
    std::vector<PostedReceive> &posted = peer_states_[header.from].posted;
    const auto it = std::find_if(posted.begin(), posted.end(), [&](const PostedReceive &each) {
        return each.tag == header.tag && each.call == header.call.call && each.hash == header.hash;
    });
    if (it == posted.end() || message.bytes > it->buffer.memory.size()) return false;
    const RecvBuffer buffer = it->buffer;
    posted.erase(it);
    message.is_matched = true;
    return fill_buffer(message, buffer);
}

bool RemoteEndpoint::fill_buffer(UnexpectedMessage &message, const RecvBuffer &buffer) {
    std::atomic<uint32_t> &readers = peer_table_.mine().readers(buffer.slot).count;
    if (message.is_pulling || readers.load(std::memory_order_acquire) != 0) return false;
    readers.store(1, std::memory_order_relaxed);
    message.buffer = buffer;
    if (!message.handle || message.data) {
        std::copy_n(message.data, message.bytes, buffer.memory.begin());
        if (message.handle) network_.discard(std::exchange(message.handle, nullptr));
        return message.is_here = true;
    }
    message.is_pulling = true;
    network_.pull(std::exchange(message.handle, nullptr), buffer.memory.first(message.bytes),
                  std::bit_cast<uint64_t>(&message));
    return false;
}

void RemoteEndpoint::free_buffer(const RecvBuffer &buffer) {
    peer_table_.mine().readers(buffer.slot).count.store(0, std::memory_order_release);
}

// Counts the message as consumed, and tells the sender so before the sender has to wait for credit.
void RemoteEndpoint::consume(const UnexpectedMessage &message) {
    const uint32_t from = message.header.from;
    PeerState &state = peer_states_[from];
    state.consumed_bytes += message.bytes;
    const bool waits_for_last = has_left(from) && unexpected_[from].size() == 1;
    if (waits_for_last || state.consumed_bytes - state.advertised_bytes >= most_unacked_ / 2)
        post(from, header(MessageKind::status));
}

std::optional<uint64_t> RemoteEndpoint::drop_unreceived() {
    std::optional<uint64_t> other;
    if (unexpected_count_ == 0) return other;
    for (UnexpectedQueue &queue : unexpected_)
        unexpected_count_ -= std::erase_if(queue, [&](UnexpectedMessage &message) {
            const uint64_t call = message.header.call.call;
            if (call >= history_.current().call || message.is_pulling) return false;
            const auto ours = history_.find(peer_table_.rank, call);
            if (ours && ours->hash() != message.header.hash)
                other = std::min(other.value_or(call), call);
            if (message.handle) network_.discard(std::exchange(message.handle, nullptr));
            if (message.is_here) free_buffer(message.buffer);
            consume(message);
            return true;
        });
    return other;
}

} // namespace qccl
