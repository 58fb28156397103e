// Eager slots to and from other hosts, and notes of where remote ranks are. Events that the network
// reports during `progress` are noted at once and answered after it, so that nothing is posted from
// inside the network.
#include "transport/remote_endpoint.hpp"

#include "base/exception_boundary.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

// Calls between two status messages to ranks that need not hear from this rank otherwise: often
// enough that no rank waits for a free call slot.
constexpr uint64_t calls_between_status = calls_kept / 2;

// Names what is given back when a message has gone: the eager slot of an exchange.
constexpr uint64_t eager_token = uint64_t{1} << 63;

void raise(std::atomic<uint64_t> &value, uint64_t to) {
    if (value.load(std::memory_order_relaxed) < to) value.store(to, std::memory_order_release);
}

} // namespace

RemoteEndpoint::~RemoteEndpoint() {
    for (const UnexpectedQueue &queue : unexpected_)
        for (const UnexpectedMessage &message : queue)
            if (message.handle) network_.discard(message.handle);
}

NetworkEvents RemoteEndpoint::events() {
    return {
        .context = this,
        .on_message =
            [](void *context, const void *head, size_t head_bytes, const void *data, size_t bytes,
               RendezvousHandle *handle) {
                auto &self = *static_cast<RemoteEndpoint *>(context);
                MessageHeader header;
                if (head_bytes == sizeof header) std::memcpy(&header, head, sizeof header);
                const bool is_sound = head_bytes == sizeof header && self.is_ours(header);
                const Done taken = exception_boundary([&]() -> Done {
                    if (is_sound) self.on_message(header, data, bytes, handle);
                    return {};
                });
                if (!taken) (void)self.shared_error_.set_once(taken.error());
                if ((!taken || !is_sound) && handle) self.network_.discard(handle);
            },
        .on_sent = [](void *context,
                      uint64_t token) { static_cast<RemoteEndpoint *>(context)->on_sent(token); },
        .on_pulled =
            [](void *context, uint64_t token, bool whole) {
                static_cast<RemoteEndpoint *>(context)->on_pulled(
                    *std::bit_cast<UnexpectedMessage *>(token), whole);
            },
        .on_peer_lost =
            [](void *context, uint32_t peer, const char *) {
                static_cast<RemoteEndpoint *>(context)->peer_states_[peer].is_lost = true;
            }};
}

bool RemoteEndpoint::progress() {
    const std::lock_guard guard(mutex_);
    return progress_locked();
}

void RemoteEndpoint::count_busy(std::chrono::steady_clock::time_point since) {
    const std::chrono::nanoseconds took = Clock::now() - since;
    busy_ns_.fetch_add(took.count(), std::memory_order_relaxed);
}

bool RemoteEndpoint::progress_locked() {
    flush_locked();
    const auto start = Clock::now();
    const bool has_moved = network_.progress();
    if (has_moved) count_busy(start);
    if (!status_requests_.empty()) answer_status_requests();
    return has_moved;
}

bool RemoteEndpoint::arm() {
    const std::lock_guard guard(mutex_);
    return network_.arm();
}

bool RemoteEndpoint::is_ours(const MessageHeader &header) const {
    return header.session == session_ && header.from < peer_table_.size() &&
           !peer_table_.is_local(header.from);
}

MessageHeader RemoteEndpoint::header(MessageKind kind) const {
    const RankStatus &status = peer_table_.mine().status();
    return {.session = session_,
            .kind = kind,
            .from = peer_table_.rank,
            .ended = status.ended.load(std::memory_order_relaxed),
            .waits_on = status.waits_on.load(std::memory_order_relaxed),
            .ignores_failure = status.ignores_failure.load(std::memory_order_relaxed)};
}

MessageHeader RemoteEndpoint::header_of_call(MessageKind kind) const {
    MessageHeader of_call = header(kind);
    of_call.call = history_.current();
    of_call.hash = history_.hash();
    return of_call;
}

void RemoteEndpoint::post(uint32_t peer, MessageHeader header, std::span<const NetworkPart> parts,
                          uint64_t token, bool is_eager) {
    PeerState &state = peer_states_[peer];
    state.is_known = true;
    header.acked_bytes = state.advertised_bytes = state.consumed_bytes;
    unsent_++;
    const auto start = Clock::now();
    const auto posted =
        network_.post(peer, std::as_bytes(std::span(&header, 1)), parts, is_eager, token);
    count_busy(start);
    if (posted == Network::Posted::refused) state.is_lost = true;
    if (posted != Network::Posted::under_way) on_sent(token);
}

void RemoteEndpoint::post_to_all(const MessageHeader &header, std::span<const NetworkPart> parts,
                                 uint64_t token) {
    for (const uint32_t peer : peer_table_.remote_ranks) post(peer, header, parts, token);
}

void RemoteEndpoint::on_sent(uint64_t token) {
    unsent_--;
    if (token == 0) return;
    if ((token & eager_token) != 0) {
        unsent_eager_[token & 1]--;
        return;
    }
    if ((token & copy_token) != 0) {
        UnsentCopy &copy = unsent_copies_.at(token);
        if (--copy.messages != 0) return;
        if (copy.is_data) unsent_data_--;
        unsent_copies_.erase(token);
        return;
    }
    on_data_sent(token);
}

std::optional<uint64_t> RemoteEndpoint::begin() {
    const std::lock_guard guard(mutex_);
    const CallDescriptor &call = history_.current();
    const auto other = drop_unclaimed();
    for (const uint32_t peer : peer_table_.remote_ranks) peer_states_[peer].posted.clear();
    const bool is_time = call.call % calls_between_status == 0;
    if (!is_time && status_waiters_.empty()) return other;
    MessageHeader status = header(MessageKind::status);
    status.call = call;
    if (is_time) post_to_all(status);
    std::erase_if(status_waiters_, [&](uint32_t peer) {
        uint64_t &requested_call = peer_states_[peer].requested_call;
        if (!is_time && requested_call > call.call) return false;
        if (!is_time && requested_call != 0) post(peer, status);
        requested_call = 0;
        return true;
    });
    return other;
}

void RemoteEndpoint::publish(uint64_t exchange, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    MessageHeader line = header_of_call(MessageKind::eager);
    line.exchange = exchange;
    const NetworkPart part{peer_table_.mine().eager_data(exchange), bytes};
    unsent_eager_[exchange % 2] += peer_table_.remote_ranks.size();
    post_to_all(line, std::span(&part, 1), eager_token | exchange % 2);
    progress_locked();
}

void RemoteEndpoint::on_message(const MessageHeader &header, const void *data, uint64_t bytes,
                                RendezvousHandle *handle) {
    take_status(header);
    switch (header.kind) {
    case MessageKind::data: return take_data(header, data, bytes, handle);
    case MessageKind::batch: return take_batch(header, data, bytes, handle);
    case MessageKind::eager: return take_eager(header, data, bytes, handle);
    case MessageKind::status_request:
        peer_states_[header.from].requested_call = header.about;
        status_requests_.push_back(header.from);
        break;
    case MessageKind::abort:
        if (Error told; bytes == sizeof told && data) {
            std::memcpy(&told, data, sizeof told);
            (void)shared_error_.set_once(sanitize_remote(told, header.from, peer_table_.size()));
        }
        break;
    case MessageKind::warned:
        raise(peer_table_.first().shared_error().warned_call, header.about);
        break;
    case MessageKind::goodbye:
        peer_table_.segments[header.from].status().has_left.store(1, std::memory_order_release);
        // The peer leaves once it knows that all it has sent has been consumed.
        if (unexpected_[header.from].empty()) status_requests_.push_back(header.from);
        break;
    case MessageKind::record: take_record(header, data, bytes); break;
    case MessageKind::status: break;
    }
    if (handle) network_.discard(handle);
}

void RemoteEndpoint::take_status(const MessageHeader &header) {
    if (header.call.call != 0) history_.record(header.from, header.call);
    RankStatus &note = peer_table_.segments[header.from].status();
    PeerState &state = peer_states_[header.from];
    state.acked_bytes = std::max(state.acked_bytes, std::min(header.acked_bytes, state.sent_bytes));
    note.waits_on.store(header.waits_on, std::memory_order_relaxed);
    note.ignores_failure.store(header.ignores_failure, std::memory_order_relaxed);
    note.awake_ns.store(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(),
                        std::memory_order_relaxed);
    raise(note.ended, header.ended);
    raise(note.begun, header.call.call);
}

void RemoteEndpoint::take_eager(const MessageHeader &header, const void *data, uint64_t bytes,
                                RendezvousHandle *handle) {
    std::byte *const line = peer_table_.segments[header.from].eager_data(header.exchange);
    if (bytes > peer_table_.eager_slot_bytes) {
        (void)shared_error_.set_once(
            Error::make(Code::damaged_data, "a line from rank %u is too long", header.from)
                .at_rank(header.from));
        if (handle) network_.discard(handle);
        return;
    }
    if (!handle || data) {
        if (bytes != 0) std::memcpy(line, data, bytes);
        if (handle) network_.discard(handle);
        return publish_received_eager(header, bytes);
    }
    UnexpectedMessage &message = slot_pulls_.emplace_back();
    message.header = header;
    message.bytes = bytes;
    network_.pull(handle, {line, bytes}, std::bit_cast<uint64_t>(&message));
}

void RemoteEndpoint::publish_received_eager(const MessageHeader &header, uint64_t bytes) {
    EagerHeader &head = peer_table_.segments[header.from].eager_header(header.exchange);
    head.call = header.call.call;
    head.hash = header.hash;
    head.bytes = bytes;
    head.stamp.store(header.exchange, std::memory_order_release);
}

void RemoteEndpoint::on_pulled(UnexpectedMessage &message, bool whole) {
    const uint32_t from = message.header.from;
    const bool is_slot = message.header.kind == MessageKind::eager;
    message.is_pulling = false;
    message.is_here = whole;
    if (!whole) peer_states_[from].is_lost = true;
    if (is_slot && whole) publish_received_eager(message.header, message.bytes);
    if (!is_slot) {
        const uint64_t begun = peer_table_.mine().status().begun.load(std::memory_order_relaxed);
        if (whole && message.header.call.call >= begun) return;
        // No receive will ask for this message, and a receive may wait for its buffer.
        empty(message.buffer);
        peer_states_[from].consumed_bytes += message.bytes;
        status_requests_.push_back(from);
    }
    const auto is_it = [&](const UnexpectedMessage &each) { return &each == &message; };
    if (is_slot)
        std::erase_if(slot_pulls_, is_it);
    else
        unexpected_count_ -= std::erase_if(unexpected_[from], is_it);
}

CallDescriptor RemoteEndpoint::latest_call() const {
    const uint64_t latest = peer_table_.mine().status().begun.load(std::memory_order_acquire);
    return history_.find(peer_table_.rank, latest).value_or(CallDescriptor());
}

// Answers the requests that came during the progress.
void RemoteEndpoint::answer_status_requests() {
    for (const uint32_t peer : std::exchange(status_requests_, {})) {
        MessageHeader status = header(MessageKind::status);
        uint64_t &requested_call = peer_states_[peer].requested_call;
        if (const auto call = history_.find(peer_table_.rank, requested_call)) {
            status.call = *call;
            requested_call = 0;
        } else {
            status.call = latest_call();
            status_waiters_.insert(peer);
        }
        post(peer, status);
    }
}

} // namespace qccl
