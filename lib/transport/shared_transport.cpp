// Implements calls, messages and eager slots over shared segments. A rank waits through the
// FailureDetector, and only in such a wait does it read anything but the word that it waits for.
#include "transport/shared_transport.hpp"

#include "memory/peer_table.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl {

// Prefetches the cache lines of the first `bytes` of a slot but the header's own, for which the
// caller waits: they come together with that line and not a transfer later.
static void fetch_behind(const EagerHeader &head, size_t bytes) {
    const auto *const line = reinterpret_cast<const std::byte *>(&head);
    for (size_t at = cache_line; at < bytes; at += cache_line) __builtin_prefetch(line + at);
}

std::function<size_t()> free_memory_of(const TransportOptions &options) {
    return options.free_memory ? options.free_memory : free_memory_bytes;
}

static TransportTraits traits_of(const PeerTable &peer_table, const PeerInfoTable &peer_info) {
    const SegmentShape &shape = peer_info[0].shape;
    TransportTraits traits{.rank = peer_table.rank,
                           .size = peer_table.size(),
                           .session = peer_info.session(),
                           .ranks_per_core = peer_info.ranks_per_core(),
                           .outbox = peer_table.mine().outbox(),
                           .slots = shape.slots,
                           .inbox = peer_table.mine().inbox(),
                           .eager_slot_bytes = shape.eager_slot_bytes};
    for (const uint32_t local : peer_table.local_ranks)
        traits.arenas.push_back(peer_table.segments[local].arena());
    return traits;
}

SharedTransport::SharedTransport(const char *name, PeerTable peer_table, LivenessMonitor liveness,
                                 const PeerInfoTable &peer_info, Recorder recorder,
                                 const TransportOptions &options)
    : Transport(traits_of(peer_table, peer_info)), name_(name), peer_table_(std::move(peer_table)),
      history_(peer_table_), shared_error_(peer_table_), recorder_(std::move(recorder)),
      remote_(peer_table_.has_remote()
                  ? std::make_unique<RemoteEndpoint>(peer_table_, history_, shared_error_)
                  : nullptr),
      detector_(peer_table_, history_, shared_error_, recorder_, std::move(liveness), remote_.get(),
                {.spin = options.spin.value_or(peer_info.may_spin(options.rank)
                                                   ? FailureDetector::usual_spin
                                                   : FailureDetector::Time(0)),
                 .spins_beside_others = options.spin.has_value(),
                 .warn_after = options.warn_after,
                 .peer_timeout = options.peer_timeout,
                 .warn = options.warn,
                 .idle = options.idle,
                 .owner = options.owner}),
      survivors_(peer_table_, history_, detector_, remote_.get(),
                 {.warn_after = options.warn_after,
                  .warn = options.warn,
                  .peer_timeout = options.peer_timeout,
                  .mismatch = [this](uint64_t call) { return mismatch_of_shrink(call); },
                  .fail = [this](const Error &error) { fail(error); }}),
      windows_(peer_table_), free_memory_(free_memory_of(options)) {
    peers_.reserve(size());
    for (uint32_t peer = 0; peer < size(); peer++)
        peers_.push_back({Outbound(peer_table_, peer), Inbound(peer_table_, peer)});
}

Done SharedTransport::use(Network network, uint64_t session) {
    if (peer_table_.local_ranks.size() == 1)
        name_ = network.name();
    else
        name_.append("+").append(network.name());
    remote_->use(std::move(network), session);
    // This rank passes on a failure that it finds or receives while it is in no call: others wait
    // for calls that it may not make for hours.
    QCCL_TRY(progress_thread_, ProgressThread::start(*remote_, [this](const Done &progressed) {
                 if (!progressed) (void)shared_error_.set_once(progressed.error());
                 if (const auto failure = shared_error_.failure()) broadcast_error(*failure);
             }));
    return {};
}

Done SharedTransport::begin(const CallShape &shape, const CallNumbers &numbers,
                            std::chrono::nanoseconds timeout, Publishes when) {
    detector_.limit(timeout);
    if (progress_thread_) progress_thread_->call_begins();
    if (unexpected_count_ != 0) drop_unexpected();
    if (numbers.call >= begun_by_all_ + history_.calls_kept())
        QCCL_TRY(await_call_slot(numbers.call));
    history_.begin(shape, numbers);
    is_call_published_ = false;
    if (when == Publishes::at_once || remote_ || shared_error_.is_set()) publish_call();
    if (remote_) {
        if (detector_.is_look_due()) {
            remote_->handle_events();
            detector_.check_liveness();
        }
        if (const auto other = remote_->begin()) return mismatch(*other);
    }
    if (shared_error_.is_set()) return report_failure(*shared_error_.failure());
    return {};
}

void SharedTransport::publish_call() {
    if (is_call_published_) return;
    is_call_published_ = true;
    history_.publish();
    recorder_.began(history_.current(), history_.hash(), history_.shape());
}

bool SharedTransport::can_begin_next() const {
    const uint64_t call = history_.current().call + 1;
    if (call < begun_by_all_ + history_.calls_kept()) return true;
    for (uint32_t peer = 0; peer < size(); peer++)
        if (peer != rank() && history_.begun(peer) + history_.calls_kept() <= call) return false;
    return true;
}

// An abandoned call may leave messages, whose tags the next call would take for its own.
void SharedTransport::drop_unexpected() {
    for (Peer &peer : peers_)
        while (const auto view = peer.inbound.take_any_unexpected()) release(*view);
    unexpected_count_ = 0;
}

uint64_t SharedTransport::offset_of(const MessageView &view) const {
    const std::span<std::byte> arena = peer_table_.segments[view.origin].arena();
    const auto offset = static_cast<uint64_t>(view.data - arena.data());
    if (offset < arena.size()) [[likely]]
        return offset;
    const std::byte *const start = peer_table_.overflows[view.origin]->memory().data();
    return arena.size() + static_cast<uint64_t>(view.data - start);
}

Result<bool> SharedTransport::send(uint32_t peer, MessageTag tag, const MessageView &view,
                                   Sends when) {
    if (!peer_table_.is_local(peer)) {
        if (!remote_->send(peer, tag, view, when)) return report_failure(detector_.lose(peer));
        return true;
    }
    Outbound &outbound = peers_[peer].outbound;
    Mail *const mail = outbound.next();
    if (!mail) return false;
    const Segment &origin = peer_table_.segments[view.origin];
    // The sender owns the slot or reads it, so no rank can find the slot free before this.
    origin.readers(view.slot).count.fetch_add(1, std::memory_order_relaxed);
    mail->call = history_.current().call;
    mail->hash = history_.hash();
    mail->tag = tag;
    mail->origin = view.origin;
    mail->slot = view.slot;
    mail->offset = offset_of(view);
    mail->bytes = view.bytes;
    mail->zero_copy = 0;
    if (view.zero_copy.data)
        mail->zero_copy = (uint64_t{view.zero_copy.window} + 1) << Mail::zero_copy_offset_bits |
                          windows_.offset(view.origin, view.zero_copy);
    outbound.post();
    return true;
}

Result<std::optional<MessageView>> SharedTransport::receive(uint32_t peer, MessageTag tag,
                                                            const RecvBuffer &buffer) {
    if (!peer_table_.is_local(peer)) return receive_remote(peer, tag, buffer);
    Inbound &inbound = peers_[peer].inbound;
    if (unexpected_count_ != 0)
        if (const auto view = inbound.take_unexpected(tag)) {
            unexpected_count_--;
            return view;
        }
    for (;;) {
        QCCL_TRY(const Mail *const mail, next_mail(peer));
        if (!mail) return std::optional<MessageView>();
        QCCL_TRY(const MessageView view, view(*mail));
        const MessageTag found = mail->tag;
        inbound.take();
        if (found == tag) return std::optional<MessageView>(view);
        inbound.queue_unexpected(found, view);
        unexpected_count_++;
    }
}

Result<std::optional<MessageView>> SharedTransport::receive_remote(uint32_t peer, MessageTag tag,
                                                                   const RecvBuffer &buffer) {
    const RemoteEndpoint::Received received = remote_->receive(peer, tag, buffer);
    switch (received.state) {
    case RemoteEndpoint::ReceiveState::nothing: break;
    case RemoteEndpoint::ReceiveState::other_call: return mismatch(received.call);
    case RemoteEndpoint::ReceiveState::too_long:
        return report_failure(shared_error_.set_once(
            Error::make(Code::damaged_data,
                        "a message from rank %u has %" PRIu64 " bytes, more than its place", peer,
                        received.bytes)
                .at_rank(peer)));
    case RemoteEndpoint::ReceiveState::here:
        return std::optional<MessageView>({.data = buffer.memory.data(),
                                           .bytes = received.bytes,
                                           .origin = rank(),
                                           .slot = buffer.slot});
    }
    return std::optional<MessageView>();
}

Result<const Mail *> SharedTransport::next_mail(uint32_t peer) {
    const Mail *const mail = peers_[peer].inbound.peek();
    const uint64_t call = history_.current().call;
    if (!mail || mail->call > call) return nullptr;
    if (mail->call < call || mail->hash != history_.hash()) return mismatch(mail->call);
    return mail;
}

Result<MessageView> SharedTransport::view(const Mail &mail) {
    const auto outside = [this](const char *what) {
        return report_failure(shared_error_.set_once(
            Error::make(Code::damaged_data, "a message points outside every %s", what)));
    };
    if (mail.origin >= size() || !peer_table_.is_local(mail.origin)) return outside("outbox");
    const Segment &origin = peer_table_.segments[mail.origin];
    std::span<std::byte> memory = origin.arena();
    uint64_t start = mail.offset;
    if (start >= memory.size()) [[unlikely]] {
        start -= memory.size();
        QCCL_TRY(memory, overflow_of(mail.origin));
    }
    const bool is_sound =
        mail.slot < origin.slots() && start <= memory.size() && mail.bytes <= memory.size() - start;
    if (!is_sound) return outside("outbox");
    const std::byte *const data = memory.data() + start;
    MessageView view{.data = data, .bytes = mail.bytes, .origin = mail.origin, .slot = mail.slot};
    if (mail.zero_copy == 0) return view;
    const uint64_t window = mail.zero_copy >> Mail::zero_copy_offset_bits;
    const uint64_t offset = mail.zero_copy & ((uint64_t{1} << Mail::zero_copy_offset_bits) - 1);
    view.zero_copy = windows_.find(mail.origin, static_cast<uint32_t>(window - 1), offset);
    if (!view.zero_copy.data) return outside("window");
    return view;
}

Result<std::span<std::byte>> SharedTransport::overflow_of(uint32_t origin) {
    OverflowMemory &overflow = *peer_table_.overflows[origin];
    const Done opened = overflow.open();
    if (!opened) return report_failure(shared_error_.set_once(opened.error()));
    has_overflow_ = true;
    recent_overflow_.note();
    return overflow.memory();
}

Result<std::span<std::byte>> SharedTransport::overflow(size_t bytes) {
    OverflowMemory &own = *peer_table_.overflows[rank()];
    MemoryClaim claim(peer_table_, free_memory_);
    QCCL_TRY(own.create(bytes, [&](uint64_t left) { return claim.still_needs(left); }));
    has_overflow_ = true;
    recent_overflow_.note();
    return own.memory();
}

// Between hosts, codecs whose buckets are whole chunks need this memory in every call. To allocate
// it takes as long as such a call itself.
void SharedTransport::give_back_overflows() {
    has_overflow_ = recent_overflow_.end_call() && remote_;
    const size_t most_kept = has_overflow_ ? most_large_kept / peer_table_.local_ranks.size() : 0;
    for (const uint32_t local : peer_table_.local_ranks)
        peer_table_.overflows[local]->close(most_kept);
}

void SharedTransport::release(const MessageView &view) {
    const uint32_t before = peer_table_.segments[view.origin].readers(view.slot).count.fetch_sub(
        1, std::memory_order_release);
    if (before == 1) peer_table_.wake(view.origin);
}

// Bytes that were read from a rank that knew of the failure may be wrong; see SharedError::failure.
Done SharedTransport::end() {
    publish_call();
    if (remote_) QCCL_TRY(await_sent());
    if (has_overflow_) give_back_overflows();
    peer_table_.mine().status().ended.store(history_.current().call, std::memory_order_release);
    if (progress_thread_) progress_thread_->call_ends();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (shared_error_.is_set()) return report_failure(*shared_error_.failure());
    history_.end();
    recorder_.ended(history_.current().call);
    return {};
}

Done SharedTransport::await_sent() {
    remote_->flush();
    const WaitScope waiting(detector_);
    while (remote_->has_unsent_data()) QCCL_TRY(wait({rank(), WaitPhase::network}));
    return {};
}

Done SharedTransport::await_ended(uint64_t call) {
    for (const uint32_t local : peer_table_.local_ranks) {
        const RankStatus &status = peer_table_.segments[local].status();
        const auto is_done = [&] {
            return status.ended.load(std::memory_order_acquire) >= call ||
                   status.has_left.load(std::memory_order_acquire) != 0;
        };
        const WaitScope waiting(detector_);
        while (local != rank() && !is_done()) QCCL_TRY(wait({local, WaitPhase::readers}));
    }
    return {};
}

Result<std::byte *> SharedTransport::eager_slot(size_t bytes) {
    const uint64_t next = exchange_ + 1, before = exchange_before(next, bytes);
    if (before > posted_by_all_) QCCL_TRY(await_posted(before));
    if (remote_) {
        const WaitScope waiting(detector_);
        while (!remote_->is_eager_sent(next, bytes)) QCCL_TRY(wait({rank(), WaitPhase::network}));
    }
    return peer_table_.mine().eager_data(next, bytes);
}

Done SharedTransport::await_posted(uint64_t exchange) {
    uint64_t seen = exchange_;
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (peer == rank()) continue;
        if (peers_[peer].seen < exchange) QCCL_TRY(await_posted_by(peer, exchange));
        seen = std::min(seen, peers_[peer].seen);
    }
    posted_by_all_ = seen;
    return {};
}

// Looks some exchanges ahead first: if the peer has come so far, the exchanges until there need no
// look at its cache lines.
Done SharedTransport::await_posted_by(uint32_t peer, uint64_t exchange) {
    constexpr uint64_t looked_ahead = eager_slots_kept / 2;
    const uint64_t ahead = std::min(exchange + looked_ahead, exchange_);
    if (has_posted(peer, ahead)) {
        peers_[peer].seen = ahead;
    } else {
        const WaitScope waiting(detector_);
        while (!has_posted(peer, exchange)) QCCL_TRY(wait({peer, WaitPhase::eager}));
        peers_[peer].seen = exchange;
    }
    if (peers_[peer].seen != exchange_) return {};
    return check_hash(peer_table_.segments[peer].eager_header(exchange_));
}

// Requires the peer's slot of this rank's latest exchange, which the peer does not change before
// this rank has posted again.
Done SharedTransport::check_hash(const EagerHeader &head) {
    if (head.hash == exchange_hash_) return {};
    // If the call numbers differ, too, the ranks' calls first differ in the earlier one.
    return mismatch(std::min(head.call, exchange_call_));
}

// `head`: of this rank's next exchange.
[[gnu::always_inline]] inline void SharedTransport::post_eager(EagerHeader &head, size_t bytes) {
    exchange_++;
    // The processor prefetches longer slots by itself.
    constexpr size_t longest_fetched = 512;
    fetched_bytes_ = bytes <= longest_fetched ? sizeof(EagerHeader) + bytes : 0;
    exchange_call_ = head.call = history_.current().call;
    exchange_hash_ = head.hash = history_.hash();
    head.bytes = bytes;
    head.stamp.store(exchange_, std::memory_order_release);
    for (uint32_t peer = 0; peer < size(); peer++) peer_table_.wake(peer);
    publish_call();
    if (remote_) remote_->send_eager(exchange_, bytes);
}

void SharedTransport::post_eager(size_t bytes) {
    post_eager(peer_table_.mine().eager_header(exchange_ + 1), bytes);
}

bool SharedTransport::has_posted(uint32_t peer, uint64_t exchange) const {
    const EagerHeader &head = peer_table_.segments[peer].eager_header(exchange);
    return head.stamp.load(std::memory_order_acquire) >= exchange;
}

bool SharedTransport::has_posted_here(uint32_t peer, uint64_t exchange) const {
    return peer_table_.is_local(peer) && has_posted(peer, exchange);
}

bool SharedTransport::is_eager_slot_free(size_t bytes) const {
    const uint64_t before = exchange_before(exchange_ + 1, bytes);
    for (uint32_t peer = 0; peer < size(); peer++)
        if (peer != rank() && peers_[peer].seen < before && !has_posted(peer, before)) return false;
    return !remote_ || remote_->is_eager_sent(exchange_ + 1, bytes);
}

Result<std::span<const std::byte>> SharedTransport::await_eager(uint32_t peer) {
    const Segment &segment = peer_table_.segments[peer];
    const EagerHeader &head = segment.eager_header(exchange_);
    for (const WaitScope waiting(detector_);;) {
        fetch_behind(head, fetched_bytes_);
        if (head.stamp.load(std::memory_order_acquire) == exchange_) break;
        QCCL_TRY(wait({peer, WaitPhase::eager}));
    }
    QCCL_TRY(check_hash(head));
    peers_[peer].seen = exchange_;
    return std::span<const std::byte>(segment.eager_data(exchange_, head.bytes), head.bytes);
}

// The same steps as those of Transport::exchange, without those that have nothing to do.
Done SharedTransport::exchange(EagerExchange &call) {
    if (!is_plain(call)) [[unlikely]]
        return Transport::exchange(call);
    detector_.limit(call.timeout);
    history_.begin(call.shape, call.numbers);
    is_call_published_ = false;
    const Segment &mine = peer_table_.mine();
    EagerHeader &own = mine.eager_header(exchange_ + 1);
    std::byte *const data = mine.eager_data(own, exchange_ + 1, call.bytes);
    call.write(data);
    post_eager(own, call.bytes);
    call.posted();
    for (size_t number = 0; number < call.ranks.size(); number++) {
        const uint32_t peer = call.ranks[number];
        if (peer == peer_table_.rank) {
            QCCL_TRY(call.read(number, {data, call.bytes}));
            continue;
        }
        const Segment &segment = peer_table_.segments[peer];
        EagerHeader &head = segment.eager_header(exchange_);
        fetch_behind(head, fetched_bytes_);
        if (head.stamp.load(std::memory_order_acquire) != exchange_ ||
            head.hash != exchange_hash_) {
            QCCL_TRY(outcome(await_eager(peer)));
        }
        // A rank that gives nothing holds up nobody, so those that it reads are mostly ahead.
        if (call.bytes == 0) __builtin_prefetch(&segment.eager_header(exchange_ + 1));
        peers_[peer].seen = exchange_;
        const size_t bytes = head.bytes;
        QCCL_TRY(call.read(number, {segment.eager_data(head, exchange_, bytes), bytes}));
    }
    return end();
}

Done SharedTransport::wait(const Wait &what) {
    publish_call();
    if (remote_ && remote_->progress()) return {};
    if (detector_.spin()) return {};
    QCCL_TRY(drain());
    const Done kept = detector_.block(what);
    return kept ? kept : report_failure(kept.error());
}

Error SharedTransport::report_failure(const Error &recorded) {
    recorder_.failed();
    if (remote_) broadcast_error(recorded);
    if (progress_thread_) progress_thread_->call_ends();
    return recorded;
}

void SharedTransport::broadcast_error(const Error &error) {
    if (has_broadcast_error_.exchange(true)) return;
    detector_.send_error(error);
    remote_->broadcast_error(error);
}

void SharedTransport::fail(const Error &error) {
    (void)report_failure(shared_error_.set_once(error));
}

std::optional<Error> SharedTransport::failure() const {
    // A caller that asks between calls learns of failures on other hosts here.
    if (remote_ && !shared_error_.is_set()) remote_->handle_events();
    return shared_error_.failure();
}

void SharedTransport::ignore_failure() {
    std::atomic<uint32_t> &ignores = peer_table_.mine().status().ignores_failure;
    if (ignores.exchange(1, std::memory_order_relaxed) == 0 && remote_) remote_->broadcast_status();
}

// Moves all messages out of the mailboxes, so that ranks that wait for space in a mailbox do not
// wait for each other.
Done SharedTransport::drain() {
    for (const uint32_t peer : peer_table_.local_ranks)
        for (;;) {
            QCCL_TRY(const Mail *const mail, next_mail(peer));
            if (!mail) break;
            QCCL_TRY(const MessageView view, view(*mail));
            peers_[peer].inbound.queue_unexpected(mail->tag, view);
            peers_[peer].inbound.take();
            unexpected_count_++;
        }
    return {};
}

void SharedTransport::leave() {
    if (peer_table_.mine().status().has_left.exchange(1, std::memory_order_release) != 0) return;
    recorder_.left();
    peer_table_.wake_all();
    if (!remote_) return;
    remote_->leave();
    detector_.send_goodbye();
}

} // namespace qccl
