// Calls, messages and lines over shared segments. What is missing is waited for with the vigil,
// and only then is anything but the awaited word itself looked at.
#include "transport/shared_transport.hpp"

#include "transport/memory_claim.hpp"

#include <algorithm>
#include <cinttypes>

namespace qccl {

// The cache lines of `bytes` from the head on, without the head's own, for which the caller waits:
// they come together with that one and not a transfer later.
static void fetch_behind(const LineHead &head, size_t bytes) {
    const auto *const line = reinterpret_cast<const std::byte *>(&head);
    for (size_t at = cache_line; at < bytes; at += cache_line) __builtin_prefetch(line + at);
}

SharedTransport::SharedTransport(const char *name, Party party, Lifelines lifelines,
                                 const Roster &roster, Recorder recorder,
                                 const TransportOptions &options)
    : name_(name), session_(roster.session()), ranks_per_core_(roster.ranks_per_core()),
      party_(std::move(party)), shape_(roster[0].shape), history_(party_), verdict_(party_),
      recorder_(std::move(recorder)),
      courier_(party_.has_far() ? std::make_unique<Courier>(party_, history_, verdict_) : nullptr),
      vigil_(party_, history_, verdict_, recorder_, std::move(lifelines), courier_.get(),
             {.spin = options.spin.value_or(roster.may_spin(options.rank) ? Vigil::usual_spin
                                                                          : Vigil::Time(0)),
              .spins_beside_others = options.spin.has_value(),
              .warn_after = options.warn_after,
              .peer_timeout = options.peer_timeout,
              .warn = options.warn,
              .idle = options.idle}),
      council_(party_, history_, vigil_, courier_.get(),
               {.warn_after = options.warn_after,
                .warn = options.warn,
                .peer_timeout = options.peer_timeout,
                .mismatch = [this](uint64_t call) { return mismatch_of_shrink(call); },
                .fail = [this](const Error &error) { fail(error); }}),
      windows_(party_), free_memory_(free_memory_of(options)) {
    peers_.reserve(size());
    for (uint32_t peer = 0; peer < size(); peer++)
        peers_.push_back({Outbound(party_, peer), Inbound(party_, peer)});
}

Done SharedTransport::use(Network network, uint64_t session) {
    if (party_.near_ranks.size() == 1)
        name_ = network.name();
    else
        name_.append("+").append(network.name());
    courier_->use(std::move(network), session);
    QCCL_TRY(attendant_, Attendant::start(*courier_, verdict_));
    return {};
}

Done SharedTransport::begin(const CallDescriptor &shape, const CallNumbers &numbers,
                            std::chrono::nanoseconds timeout, Publishes when) {
    vigil_.limit(timeout);
    if (attendant_) attendant_->call_begins();
    if (shelved_ != 0) clear_shelves();
    if (numbers.call >= together_ + calls_kept) QCCL_TRY(keep_together(numbers.call));
    history_.begin(shape, numbers);
    is_call_published_ = false;
    if (when == Publishes::at_once || courier_ || verdict_.is_passed()) publish_call();
    if (courier_) {
        courier_->progress();
        vigil_.listen();
        if (const auto other = courier_->begin()) return mismatch(*other);
    }
    if (verdict_.is_passed()) return told(*verdict_.failure());
    return {};
}

// A call that was given up may leave messages, whose tags the next call would take for its own.
void SharedTransport::clear_shelves() {
    for (Peer &peer : peers_)
        while (const auto wire = peer.inbound.unshelve_any()) release(*wire);
    shelved_ = 0;
}

uint64_t SharedTransport::offset_of(const Wire &wire) const {
    const std::span<std::byte> arena = party_.segments[wire.origin].arena();
    const auto offset = static_cast<uint64_t>(wire.data - arena.data());
    if (offset < arena.size()) [[likely]]
        return offset;
    const std::byte *const start = party_.overflows[wire.origin]->memory().data();
    return arena.size() + static_cast<uint64_t>(wire.data - start);
}

Result<bool> SharedTransport::send(uint32_t peer, MessageTag tag, const Wire &wire, Sends when) {
    if (!party_.is_near(peer)) {
        if (!courier_->send(peer, tag, wire, when)) return told(vigil_.lose(peer));
        vigil_.came();
        return true;
    }
    Outbound &outbound = peers_[peer].outbound;
    Mail *const mail = outbound.next();
    if (!mail) return false;
    const Segment &origin = party_.segments[wire.origin];
    // The sender owns the slot or reads it, so nobody can find it free before this.
    origin.readers(wire.slot).count.fetch_add(1, std::memory_order_relaxed);
    mail->call = history_.current().call;
    mail->hash = history_.hash();
    mail->tag = tag;
    mail->origin = wire.origin;
    mail->slot = wire.slot;
    mail->offset = offset_of(wire);
    mail->bytes = wire.bytes;
    mail->loan = 0;
    if (wire.loan.data)
        mail->loan = (uint64_t{wire.loan.window} + 1) << Mail::loan_offset_bits |
                     windows_.offset(wire.origin, wire.loan);
    outbound.post();
    vigil_.came();
    return true;
}

Result<std::optional<Wire>> SharedTransport::receive(uint32_t peer, MessageTag tag,
                                                     const Room &room) {
    if (!party_.is_near(peer)) return receive_far(peer, tag, room);
    Inbound &inbound = peers_[peer].inbound;
    if (shelved_ != 0)
        if (const auto wire = inbound.unshelve(tag)) {
            shelved_--;
            vigil_.came();
            return wire;
        }
    for (;;) {
        QCCL_TRY(const Mail *const mail, next_mail(peer));
        if (!mail) return std::optional<Wire>();
        QCCL_TRY(const Wire wire, view(*mail));
        const MessageTag found = mail->tag;
        inbound.take();
        if (found == tag) {
            vigil_.came();
            return std::optional<Wire>(wire);
        }
        inbound.shelve(found, wire);
        shelved_++;
    }
}

Result<std::optional<Wire>> SharedTransport::receive_far(uint32_t peer, MessageTag tag,
                                                         const Room &room) {
    const Courier::Received received = courier_->receive(peer, tag, room);
    switch (received.arrival) {
    case Courier::Arrival::nothing: break;
    case Courier::Arrival::other_call: return mismatch(received.call);
    case Courier::Arrival::too_long:
        return told(verdict_.pass(Error::make(Code::damaged_data,
                                              "a message from rank %u has %" PRIu64
                                              " bytes, more than its place",
                                              peer, received.bytes)
                                      .at_rank(peer)));
    case Courier::Arrival::here:
        vigil_.came();
        return std::optional<Wire>({.data = room.memory.data(),
                                    .bytes = received.bytes,
                                    .origin = rank(),
                                    .slot = room.slot});
    }
    return std::optional<Wire>();
}

Result<const Mail *> SharedTransport::next_mail(uint32_t peer) {
    const Mail *const mail = peers_[peer].inbound.peek();
    const uint64_t call = history_.current().call;
    if (!mail || mail->call > call) return nullptr;
    if (mail->call < call || mail->hash != history_.hash()) return mismatch(mail->call);
    return mail;
}

Result<Wire> SharedTransport::view(const Mail &mail) {
    const auto outside = [this](const char *what) {
        return told(verdict_.pass(
            Error::make(Code::damaged_data, "a message points outside every %s", what)));
    };
    if (mail.origin >= size() || !party_.is_near(mail.origin)) return outside("outbox");
    const Segment &origin = party_.segments[mail.origin];
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
    Wire wire{.data = data, .bytes = mail.bytes, .origin = mail.origin, .slot = mail.slot};
    if (mail.loan == 0) return wire;
    const uint64_t window = mail.loan >> Mail::loan_offset_bits;
    const uint64_t offset = mail.loan & ((uint64_t{1} << Mail::loan_offset_bits) - 1);
    wire.loan = windows_.find(mail.origin, static_cast<uint32_t>(window - 1), offset);
    if (!wire.loan.data) return outside("window");
    return wire;
}

Result<std::span<std::byte>> SharedTransport::overflow_of(uint32_t origin) {
    OverflowMemory &overflow = *party_.overflows[origin];
    const Done opened = overflow.open();
    if (!opened) return told(verdict_.pass(opened.error()));
    has_overflow_ = true;
    return overflow.memory();
}

Result<std::span<std::byte>> SharedTransport::overflow(size_t bytes) {
    OverflowMemory &own = *party_.overflows[rank()];
    MemoryClaim claim(party_, free_memory_);
    QCCL_TRY(own.create(bytes, [&](uint64_t left) { return claim.still_needs(left); }));
    has_overflow_ = true;
    return own.memory();
}

void SharedTransport::close_overflows() {
    for (const uint32_t near : party_.near_ranks) party_.overflows[near]->close();
    has_overflow_ = false;
}

void SharedTransport::release(const Wire &wire) {
    const uint32_t before = party_.segments[wire.origin].readers(wire.slot).count.fetch_sub(
        1, std::memory_order_release);
    if (before == 1) party_.wake(wire.origin);
}

// What has been read of a rank that knew of the failure cannot be believed; see Verdict::failure.
Done SharedTransport::end() {
    publish_call();
    vigil_.came();
    if (courier_) courier_->flush();
    while (courier_ && courier_->has_unsent_mail()) QCCL_TRY(wait({rank(), WaitPhase::network}));
    if (has_overflow_) close_overflows();
    party_.mine().presence().ended.store(history_.current().call, std::memory_order_release);
    if (attendant_) attendant_->call_ends();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (verdict_.is_passed()) return told(*verdict_.failure());
    history_.end();
    recorder_.ended(history_.current().call);
    return {};
}

Done SharedTransport::await_ended(uint64_t call) {
    for (const uint32_t near : party_.near_ranks) {
        const Presence &presence = party_.segments[near].presence();
        const auto is_done = [&] {
            return presence.ended.load(std::memory_order_acquire) >= call ||
                   presence.has_left.load(std::memory_order_acquire) != 0;
        };
        while (near != rank() && !is_done()) QCCL_TRY(wait({near, WaitPhase::readers}));
        vigil_.came();
    }
    return {};
}

Result<std::byte *> SharedTransport::line() {
    // What this line held two exchanges ago has been read by whoever has published in the latest.
    for (uint32_t peer = 0; peer < size(); peer++)
        if (peers_[peer].seen < exchange_ && peer != rank()) QCCL_TRY(await_exchange(peer));
    while (courier_ && !courier_->is_line_sent(exchange_ + 1))
        QCCL_TRY(wait({rank(), WaitPhase::network}));
    return party_.mine().line_data(exchange_ + 1);
}

void SharedTransport::publish(size_t bytes) {
    exchange_++;
    exchange_call_ = history_.current().call;
    exchange_hash_ = history_.hash();
    // Longer lines the processor fetches ahead by itself.
    constexpr size_t longest_fetched = 512;
    fetched_bytes_ = bytes <= longest_fetched ? sizeof(LineHead) + bytes : 0;
    LineHead &head = party_.mine().line(exchange_);
    head.call = exchange_call_;
    head.hash = exchange_hash_;
    head.bytes = bytes;
    head.stamp.store(exchange_, std::memory_order_release);
    for (uint32_t peer = 0; peer < size(); peer++) party_.wake(peer);
    publish_call();
    if (courier_) courier_->publish(exchange_, bytes);
}

Result<std::span<const std::byte>> SharedTransport::await_line(uint32_t peer) {
    QCCL_TRY(const LineHead *const head, await_exchange(peer));
    return std::span<const std::byte>(party_.segments[peer].line_data(exchange_), head->bytes);
}

// Until the peer has published in this rank's latest exchange.
Result<const LineHead *> SharedTransport::await_exchange(uint32_t peer) {
    const LineHead &head = party_.segments[peer].line(exchange_);
    for (;;) {
        fetch_behind(head, fetched_bytes_);
        if (head.stamp.load(std::memory_order_acquire) == exchange_) break;
        QCCL_TRY(wait({peer, WaitPhase::line}));
    }
    vigil_.came();
    // Where the calls are not even the same, ranks parted in the earlier one.
    if (head.hash != exchange_hash_ && exchange_ != 0)
        return mismatch(std::min(head.call, exchange_call_));
    peers_[peer].seen = exchange_;
    return &head;
}

Done SharedTransport::wait(const Wait &what) {
    publish_call();
    if (courier_ && courier_->progress()) return {};
    if (vigil_.linger()) return {};
    QCCL_TRY(drain());
    const Done kept = vigil_.keep(what);
    return kept ? kept : told(kept.error());
}

Error SharedTransport::told(const Error &standing) {
    recorder_.failed();
    if (courier_) spread(standing);
    if (attendant_) attendant_->call_ends();
    return standing;
}

void SharedTransport::spread(const Error &error) {
    if (has_spread_.exchange(true)) return;
    vigil_.tell(error);
    courier_->spread(error);
}

Loan SharedTransport::lend(const void *data, size_t bytes) const {
    const auto *const first = static_cast<const std::byte *>(data);
    // A network reads memory wherever it lies.
    if (party_.near_ranks.size() == 1 && courier_) return {.data = first, .bytes = bytes};
    return windows_.lend(first, bytes);
}

std::vector<std::span<std::byte>> SharedTransport::arenas() {
    std::vector<std::span<std::byte>> arenas;
    for (const uint32_t near : party_.near_ranks) arenas.push_back(party_.segments[near].arena());
    return arenas;
}

void SharedTransport::fail(const Error &error) { (void)told(verdict_.pass(error)); }

std::optional<Error> SharedTransport::failure() const {
    // Whoever asks between calls hears of other hosts here.
    if (courier_ && !verdict_.is_passed()) courier_->progress();
    return verdict_.failure();
}

void SharedTransport::ignore_failure() {
    std::atomic<uint32_t> &ignores = party_.mine().presence().ignores_failure;
    if (ignores.exchange(1, std::memory_order_relaxed) == 0 && courier_) courier_->announce();
}

// Makes room in all mailboxes, so that ranks that wait for room to send do not wait for each other.
Done SharedTransport::drain() {
    for (const uint32_t peer : party_.near_ranks)
        for (;;) {
            QCCL_TRY(const Mail *const mail, next_mail(peer));
            if (!mail) break;
            QCCL_TRY(const Wire wire, view(*mail));
            peers_[peer].inbound.shelve(mail->tag, wire);
            peers_[peer].inbound.take();
            shelved_++;
        }
    return {};
}

void SharedTransport::leave() {
    if (party_.mine().presence().has_left.exchange(1, std::memory_order_release) != 0) return;
    recorder_.left();
    party_.wake_all();
    if (!courier_) return;
    courier_->leave();
    vigil_.say_farewell();
}

} // namespace qccl
