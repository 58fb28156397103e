// RemoteEndpoint without its data messages, which are in data_messages.cpp: eager slots to and from
// other hosts, notes of where remote ranks are, control messages, and the loop of the progress
// thread. Events that the network reports during `progress` are noted at once and answered after
// it, so that nothing is posted from inside the network.
//
// The control messages are a rank's status, status requests, the communicator's failure, warnings,
// seqlock records and the goodbye. Any thread may send them. `flush_records` and `broadcast_error`
// block for a bounded time until the messages have left, and `leave` also while peers wait for
// them; the others do not block.
#include "transport/remote_endpoint.hpp"

#include "base/exception_boundary.hpp"
#include "memory/segment.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <thread>
#include <utility>

namespace qccl {

// ---- Events and eager slots

namespace {

using Clock = std::chrono::steady_clock;

void raise(std::atomic<uint64_t> &value, uint64_t to) {
    if (value.load(std::memory_order_relaxed) < to) value.store(to, std::memory_order_release);
}

} // namespace

RemoteEndpoint::~RemoteEndpoint() {
    for (const UnexpectedQueue &queue : unexpected_)
        for (const UnexpectedMessage &message : queue)
            if (message.handle) network_.discard(message.handle);
}

RemoteEndpoint &RemoteEndpoint::with_event(void *context) {
    auto &self = *static_cast<RemoteEndpoint *>(context);
    self.has_unreported_events_ = true;
    return self;
}

NetworkEvents RemoteEndpoint::events() {
    return {.context = this,
            .on_message =
                [](void *context, const void *head, size_t head_bytes, const void *data,
                   size_t bytes, RendezvousHandle *handle) {
                    RemoteEndpoint &self = with_event(context);
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
                          uint64_t token) { with_event(context).on_sent(SendToken(token)); },
            .on_pulled =
                [](void *context, uint64_t token, bool whole) {
                    with_event(context).on_pulled(*std::bit_cast<UnexpectedMessage *>(token),
                                                  whole);
                },
            .on_peer_lost =
                [](void *context, uint32_t peer, const char *) {
                    with_event(context).peer_states_[peer].is_lost = true;
                }};
}

bool RemoteEndpoint::progress() {
    const std::lock_guard guard(mutex_);
    progress_locked();
    return std::exchange(has_unreported_events_, false);
}

void RemoteEndpoint::handle_events() {
    {
        const std::lock_guard guard(mutex_);
        progress_locked();
        if (!has_unreported_events_) return;
    }
    peer_table_.wake(peer_table_.rank);
}

void RemoteEndpoint::count_busy(std::chrono::steady_clock::time_point since) {
    const std::chrono::nanoseconds took = Clock::now() - since;
    busy_ns_.fetch_add(took.count(), std::memory_order_relaxed);
}

void RemoteEndpoint::progress_locked() {
    flush_locked();
    const auto start = Clock::now();
    if (network_.progress()) {
        has_unreported_events_ = true;
        count_busy(start);
    }
    if (!status_requests_.empty()) answer_status_requests();
}

bool RemoteEndpoint::arm() {
    const std::lock_guard guard(mutex_);
    return !has_unreported_events_ && network_.arm();
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
                          SendToken token, bool is_eager) {
    PeerState &state = peer_states_[peer];
    state.is_known = true;
    header.acked_bytes = state.advertised_bytes = state.consumed_bytes;
    unsent_++;
    const auto start = Clock::now();
    const auto posted =
        network_.post(peer, std::as_bytes(std::span(&header, 1)), parts, is_eager, token.word());
    count_busy(start);
    if (posted == Network::Posted::refused) state.is_lost = true;
    if (posted != Network::Posted::under_way) on_sent(token);
}

void RemoteEndpoint::post_to_all(const MessageHeader &header, std::span<const NetworkPart> parts,
                                 SendToken token) {
    for (const uint32_t peer : peer_table_.remote_ranks) post(peer, header, parts, token);
}

void RemoteEndpoint::on_sent(SendToken token) {
    unsent_--;
    switch (token.kind()) {
    case SendToken::Kind::nothing: break;
    case SendToken::Kind::data_slot: on_data_sent(token); break;
    case SendToken::Kind::eager_slot: unsent_eager_.at(token.number())--; break;
    case SendToken::Kind::copy: {
        UnsentCopy &copy = unsent_copies_.at(token.number());
        if (--copy.messages != 0) break;
        if (copy.is_data) unsent_data_--;
        unsent_copies_.erase(token.number());
        break;
    }
    }
}

std::optional<uint64_t> RemoteEndpoint::begin() {
    const std::lock_guard guard(mutex_);
    const CallDescriptor &call = history_.current();
    const auto other = drop_unreceived();
    for (const uint32_t peer : peer_table_.remote_ranks) peer_states_[peer].posted.clear();
    // Ranks that need not hear from this rank otherwise hear often enough that none waits for a
    // free call slot.
    const bool is_time = call.call % (history_.calls_kept() / 2) == 0;
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

void RemoteEndpoint::send_eager(uint64_t exchange, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    MessageHeader header = header_of_call(MessageKind::eager);
    header.exchange = exchange;
    const NetworkPart part{peer_table_.mine().eager_data(exchange, bytes), bytes};
    const uint64_t slot = exchange % eager_slots_kept;
    unsent_eager_[slot] += peer_table_.remote_ranks.size();
    post_to_all(header, std::span(&part, 1), SendToken::of_eager_slot(slot));
    // What has gone needs no progress, and the caller looks at the network before it waits.
    if (unsent_ != 0) progress_locked();
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
    case MessageKind::failure:
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
        status_requests_.push_back(header.from);
        break;
    case MessageKind::goodbye_ack: peer_states_[header.from].has_acked_goodbye = true; break;
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
    std::byte *const slot = peer_table_.segments[header.from].eager_data(header.exchange, bytes);
    if (bytes > peer_table_.eager_slot_bytes) {
        (void)shared_error_.set_once(
            Error::make(Code::damaged_data, "an eager slot of rank %u is too long", header.from)
                .at_rank(header.from));
        if (handle) network_.discard(handle);
        return;
    }
    if (!handle || data) {
        if (bytes != 0) std::memcpy(slot, data, bytes);
        if (handle) network_.discard(handle);
        return deliver_eager(header, bytes);
    }
    UnexpectedMessage &message = eager_pulls_.emplace_back();
    message.header = header;
    message.bytes = bytes;
    network_.pull(handle, {slot, bytes}, std::bit_cast<uint64_t>(&message));
}

void RemoteEndpoint::deliver_eager(const MessageHeader &header, uint64_t bytes) {
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
    if (is_slot && whole) deliver_eager(message.header, message.bytes);
    if (!is_slot) {
        const uint64_t begun = peer_table_.mine().status().begun.load(std::memory_order_relaxed);
        if (whole && message.header.call.call >= begun) return;
        // No receive will ask for this message, and a receive may wait for its buffer.
        free_buffer(message.buffer);
        peer_states_[from].consumed_bytes += message.bytes;
        status_requests_.push_back(from);
    }
    const auto is_it = [&](const UnexpectedMessage &each) { return &each == &message; };
    if (is_slot)
        std::erase_if(eager_pulls_, is_it);
    else
        unexpected_count_ -= std::erase_if(unexpected_[from], is_it);
}

CallDescriptor RemoteEndpoint::latest_call() const {
    const uint64_t latest = peer_table_.mine().status().begun.load(std::memory_order_acquire);
    return history_.find(peer_table_.rank, latest).value_or(CallDescriptor());
}

// Answers the requests and the goodbyes that came during the progress.
void RemoteEndpoint::answer_status_requests() {
    for (const uint32_t peer : std::exchange(status_requests_, {})) {
        MessageHeader status =
            header(has_left(peer) ? MessageKind::goodbye_ack : MessageKind::status);
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

// ---- Control messages

namespace {

// Up to this number of ranks, a rank sends a failure to all remote ranks. With more ranks it sends
// the failure to the ranks at distances that are powers of two, which forward it in turn.
constexpr uint32_t few = 16;

// A rank that has other work to do waits for its outgoing messages no longer than this.
constexpr auto longest_farewell = std::chrono::milliseconds(250);

} // namespace

template <class Condition>
bool RemoteEndpoint::progress_until(const Condition &is_met, std::chrono::nanoseconds longest) {
    const auto deadline = Clock::now() + longest;
    while (!is_met()) {
        if (Clock::now() >= deadline) return false;
        if (!progress()) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
}

void RemoteEndpoint::broadcast_status() {
    const std::lock_guard guard(mutex_);
    MessageHeader status = header(MessageKind::status);
    status.call = latest_call();
    post_to_all(status);
    progress_locked();
}

MessageHeader RemoteEndpoint::status_request(uint64_t call) const {
    MessageHeader request = header(MessageKind::status_request);
    request.call = history_.find(peer_table_.rank, call).value_or(latest_call());
    request.about = call;
    return request;
}

void RemoteEndpoint::request_status_of_all(uint64_t call) {
    const std::lock_guard guard(mutex_);
    post_to_all(status_request(call));
    progress_locked();
}

void RemoteEndpoint::request_status(uint32_t peer, uint64_t call) {
    const std::lock_guard guard(mutex_);
    post(peer, status_request(call));
}

void RemoteEndpoint::flush_records() {
    const auto are_sent = [&] {
        const std::lock_guard guard(mutex_);
        return unsent_copies_.empty();
    };
    progress_until(are_sent, longest_farewell);
}

void RemoteEndpoint::broadcast_error(const Error &error) {
    {
        const std::lock_guard guard(mutex_);
        failure_ = error;
        const NetworkPart part{&failure_, sizeof failure_};
        for (const uint32_t peer : gossip_targets())
            post(peer, header(MessageKind::failure), std::span(&part, 1));
    }
    progress_until([&] { return unsent_ == 0; }, longest_farewell);
}

std::vector<uint32_t> RemoteEndpoint::gossip_targets() const {
    const uint32_t size = peer_table_.size();
    std::vector<uint32_t> ranks;
    for (uint32_t step = 1; step<size; step = size> few ? 2 * step : step + 1) {
        ranks.push_back((peer_table_.rank + step) % size);
        ranks.push_back((peer_table_.rank + size - step) % size);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::erase_if(ranks, [&](uint32_t rank) { return peer_table_.is_local(rank); });
    return ranks;
}

void RemoteEndpoint::broadcast_warning(uint64_t call) {
    const std::lock_guard guard(mutex_);
    MessageHeader warned = header(MessageKind::warned);
    warned.call = history_.current();
    warned.about = call;
    post_to_all(warned);
    progress_locked();
}

void RemoteEndpoint::leave() {
    {
        const std::lock_guard guard(mutex_);
        flush_locked(); // messages of an abandoned call
        MessageHeader left = header(MessageKind::goodbye);
        left.call = latest_call(); // peers do not miss this rank in a call that it has begun
        for (const uint32_t peer : peer_table_.remote_ranks)
            if (peer_states_[peer].is_known && !peer_states_[peer].is_lost) post(peer, left);
    }
    while (!progress_until([&] { return is_done_by_all(); }, std::chrono::seconds(1)))
        if (!is_awaited()) break;
}

// Returns whether a peer still waits for this rank's messages. A peer that waits says so twice a
// second. On a slow line the messages may take many seconds: the system has accepted megabytes of
// them, and tells nobody how far they have come.
bool RemoteEndpoint::is_awaited() {
    constexpr auto longest_silence = std::chrono::seconds(2);
    const std::lock_guard guard(mutex_);
    const std::chrono::nanoseconds oldest = (Clock::now() - longest_silence).time_since_epoch();
    return !shared_error_.is_set() &&
           std::ranges::any_of(peer_table_.remote_ranks, [&](uint32_t peer) {
               const RankStatus &note = peer_table_.segments[peer].status();
               const bool waits =
                   note.waits_on.load(std::memory_order_relaxed) == peer_table_.rank + 1 &&
                   note.awake_ns.load(std::memory_order_relaxed) >= oldest.count();
               return waits && !is_done_by(peer);
           });
}

// Returns whether each peer that may still need this rank's messages has received all and consumed
// the data, or the communicator has failed. If the network is closed earlier, messages that it has
// accepted may be lost, also on the peer's host: a peer that sends into the closed connection finds
// it broken, and UCX then drops what it has not read from it.
bool RemoteEndpoint::is_done_by_all() {
    const std::lock_guard guard(mutex_);
    return unsent_ == 0 && (shared_error_.is_set() ||
                            std::ranges::all_of(peer_table_.remote_ranks,
                                                [&](uint32_t peer) { return is_done_by(peer); }));
}

bool RemoteEndpoint::is_done_by(uint32_t peer) const {
    const PeerState &state = peer_states_[peer];
    return !state.is_known || state.is_lost || has_left(peer) ||
           (state.has_acked_goodbye && state.acked_bytes == state.sent_bytes);
}

void RemoteEndpoint::send_record(uint32_t number, uint64_t version,
                                 std::span<const std::byte> bytes,
                                 std::span<const uint32_t> remote_ranks) {
    const std::lock_guard guard(mutex_);
    MessageHeader notice = header(MessageKind::record);
    notice.tag.instance = number;
    notice.exchange = version;
    // The next version of this record may have to be written before this one has gone to all.
    const SendToken token = SendToken::of_copy(++copies_);
    UnsentCopy &unsent = unsent_copies_[copies_];
    unsent.bytes.assign(bytes.begin(), bytes.end());
    unsent.messages = remote_ranks.size() + 1;
    const NetworkPart part{unsent.bytes.data(), unsent.bytes.size()};
    for (const uint32_t rank : remote_ranks) post(rank, notice, std::span(&part, 1), token);
    unsent_++;
    on_sent(token); // the extra count, which has kept the bytes until here
    progress_locked();
}

// A record is short enough to be sent eagerly; one that is not comes from no rank of this
// communicator.
void RemoteEndpoint::take_record(const MessageHeader &header, const void *data, uint64_t bytes) {
    const Segment &segment = peer_table_.segments[header.from];
    const uint32_t number = header.tag.instance;
    if (number >= records_kept || !data || bytes > segment.record_words(number).size_bytes())
        return;
    if (header.exchange <= version_of_record(segment, number)) return;
    write_record(segment, number, header.exchange,
                 std::span(static_cast<const std::byte *>(data), bytes));
}

// ---- Progress between calls

// Short compared with how long a rank waits for an answer, and long enough to cost the core
// nothing.
static constexpr auto between_looks = std::chrono::milliseconds(100);

Result<std::unique_ptr<ProgressThread>> ProgressThread::start(RemoteEndpoint &remote,
                                                              AfterLook after_look) {
    std::unique_ptr<ProgressThread> progress_thread(
        new ProgressThread(remote, std::move(after_look)));
    QCCL_TRY(progress_thread->thread_,
             ServiceThread::start("qccl-progress", [raw = progress_thread.get()] { raw->run(); }));
    return progress_thread;
}

ProgressThread::~ProgressThread() {
    {
        const std::lock_guard guard(mutex_);
        has_left_ = true;
    }
    leaving_.notify_all();
}

// The loop pauses during a call, since an event that this thread handled would not wake the thread
// that runs the call.
void ProgressThread::run() {
    std::unique_lock lock(mutex_);
    while (!leaving_.wait_for(lock, between_looks, [&] { return has_left_; })) {
        if (is_in_call_.load(std::memory_order_relaxed)) continue;
        const Done progressed = exception_boundary([&]() -> Done {
            remote_.handle_events();
            return {};
        });
        after_look_(progressed);
    }
}

} // namespace qccl
