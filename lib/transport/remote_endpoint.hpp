// One rank's endpoint towards the ranks of other hosts: it sends and receives their messages and
// eager slots, notes where these ranks are, and tells them where this rank is. Any thread may use
// it. Only `flush_records`, `broadcast_error` and `leave` wait, for a second at most unless peers
// still wait for what a rank that leaves has sent. MessageHeader is the header of every message
// between ranks of different hosts.
//
// ProgressThread is a background thread that answers ranks of other hosts while this rank is in no
// call. Ranks that wait ask every rank where it is, and a rank that only computes for a while would
// not answer. SharedTransport uses it, on the thread that makes the calls.
#pragma once

#include "base/system.hpp"
#include "base/types.hpp"
#include "fault/published_state.hpp"
#include "transport/network.hpp"
#include "transport/network_module.hpp"
#include "transport/transport.hpp"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <set>

namespace qccl {

// ---- Headers of messages

enum class MessageKind : uint32_t {
    data,           // bytes: an encoded chunk
    eager,          // bytes: the contents of the sender's eager slot
    status,         // no bytes: the header alone says where the sender is
    status_request, // asks for a status that tells of call `about` once that has begun
    failure,        // bytes: the Error that the communicator has failed with
    warned,         // a rank has warned its user that call `about` waits
    goodbye,        // the sender takes part in no further call
    record,         // bytes: seqlock record number `tag.instance` of the sender
    batch,          // bytes: encoded chunks of one call, each behind its BatchEntry
    goodbye_ack,    // a status; the sender has received the goodbye, and all that came before it
};

// Sent as plain bytes, between libraries of one protocol version.
struct MessageHeader {
    uint64_t session = 0; // of the communicator; messages with another session are dropped
    MessageKind kind = MessageKind::status;
    uint32_t from = 0;
    // Copies of the fields of the sender's RankStatus.
    uint64_t ended = 0;
    uint32_t waits_on = 0;
    uint32_t ignores_failure = 0;
    // A call that the sender has begun: the call that the receiver asked about, else the sender's
    // latest call. A rank never tells that it has begun a call without this descriptor. Number 0:
    // the header tells of no call.
    CallDescriptor call{};
    uint64_t hash = 0;        // data, batch and eager: of `call`
    uint64_t about = 0;       // status_request and warned: a call number
    uint64_t acked_bytes = 0; // bytes of data from the addressee that the sender has consumed
    MessageTag tag{};         // data and record
    uint64_t exchange = 0;    // eager: number of the exchange; record: its version
};
static_assert(sizeof(MessageHeader) == 184 && sizeof(MessageHeader) <= most_network_head_bytes);

// Precedes each chunk in a batch.
struct BatchEntry {
    MessageTag tag;
    uint64_t bytes = 0;
};
static_assert(sizeof(BatchEntry) == batch_entry_bytes);
// A batch is always sent eagerly, so that the receiver can take it apart at once.
static_assert(most_batch_bytes <= always_eager_bytes);

// ---- Tokens of sent messages

// What a message gives back when the network has sent it: the token of Network::post, in a word
// that is 0 if the message gives nothing back.
class SendToken {
public:
    enum class Kind : uint8_t {
        nothing,
        data_slot,  // one reader of a slot in an outbox or inbox, in whose memory the bytes lie
        eager_slot, // one message of one of this rank's eager slots
        copy,       // one message of a copy of the bytes, which the endpoint keeps
    };

    SendToken() = default;
    static SendToken of_data_slot(uint32_t origin, uint32_t slot) {
        return {Kind::data_slot, uint64_t{origin} << 32 | slot};
    }
    static SendToken of_eager_slot(uint64_t slot) { return {Kind::eager_slot, slot}; }
    static SendToken of_copy(uint64_t number) { return {Kind::copy, number}; }
    explicit SendToken(uint64_t word) : word_(word) {}

    uint64_t word() const { return word_; }
    Kind kind() const { return static_cast<Kind>(word_ >> kind_shift); }
    // Of a data slot.
    uint32_t origin() const { return static_cast<uint32_t>(number() >> 32); }
    uint32_t slot() const { return static_cast<uint32_t>(number()); }
    // Of an eager slot or a copy.
    uint64_t number() const { return word_ & ((uint64_t{1} << kind_shift) - 1); }

private:
    // There are far fewer ranks and copies than would reach the two highest bits.
    static constexpr unsigned kind_shift = 62;
    SendToken(Kind kind, uint64_t number)
        : word_(static_cast<uint64_t>(kind) << kind_shift | number) {}

    uint64_t word_ = 0;
};

// ---- The endpoint

class RemoteEndpoint final : public RemoteRanks {
public:
    RemoteEndpoint(const PeerTable &peer_table, CallHistory &history, SharedError &shared_error)
        : peer_table_(peer_table), history_(history), shared_error_(shared_error),
          most_unacked_(most_unacked(peer_table.remote_ranks.size())),
          unexpected_(peer_table.size()), peer_states_(peer_table.size()) {}
    RemoteEndpoint(const RemoteEndpoint &) = delete;
    // Gives the network the bytes back that no receive has asked for.
    ~RemoteEndpoint();

    // Bytes that a rank may send to one peer without an acknowledgement: until the peer consumes
    // them they lie in the peer's heap.
    static constexpr uint64_t most_unacked(uint64_t remote_ranks) {
        constexpr uint64_t from_all = uint64_t{64} << 20;
        return std::clamp(from_all / std::max<uint64_t>(1, remote_ranks), uint64_t{256} << 10,
                          uint64_t{4} << 20);
    }
    // On a slow line these may also be two messages of this length. A longer message waits until it
    // is pulled, and the request to pull it queues behind the messages of its own direction: the
    // line then carries one direction at a time. A fast line is not worth the copy.
    static constexpr uint64_t most_unacked_if_slow(uint64_t remote_ranks, uint64_t bytes) {
        constexpr uint64_t from_all = uint64_t{256} << 20;
        return std::max(most_unacked(remote_ranks),
                        std::min(from_all / std::max<uint64_t>(1, remote_ranks), 2 * bytes));
    }
    // The rank's share of the line, below which a line is slow.
    static constexpr double slow_bytes_per_ns = 0.5;
    void use_line_rate(double bytes_per_ns) { is_line_slow_ = bytes_per_ns < slow_bytes_per_ns; }

    NetworkEvents events();
    // `network` was opened with these events. `session` is equal on all ranks and known to no
    // others.
    void use(Network network, uint64_t session) {
        network_ = std::move(network);
        session_ = session;
    }
    Network &network() { return network_; }

    bool progress() override;
    // The same for callers that need no answer: the next `progress` reports what has happened. If
    // the rank sleeps, on another thread, it is woken: what it polls shows nothing of an event that
    // has been handled.
    void handle_events();
    // Whether the network still reads data of the caller. Status messages do not count: they may
    // take for ever to reach a peer that is in no call.
    bool has_unsent_data() const { return unsent_data_ != 0; }
    bool is_lost(uint32_t peer) const override {
        const std::lock_guard guard(mutex_);
        return peer_states_[peer].is_lost;
    }
    bool has_matched_data_from(uint32_t peer) const override;
    bool arm() override;
    int descriptor() const override { return network_.descriptor(); }
    // Time that sending and receiving has taken, on any thread; looks that find nothing do not
    // count.
    std::chrono::nanoseconds busy_time() const {
        return std::chrono::nanoseconds(busy_ns_.load(std::memory_order_relaxed));
    }

    // Called when a call has begun. Returns an earlier call whose unreceived messages prove a
    // mismatch: their sender meant another call by that number than this rank.
    std::optional<uint64_t> begin();
    // Returns false if the peer is lost.
    bool send(uint32_t peer, MessageTag tag, const MessageView &view, Transport::Sends when);
    // Sends the messages that wait for a next one.
    void flush();
    // Sends the first `bytes` bytes of this rank's eager slot to all remote ranks.
    void send_eager(uint64_t exchange, uint64_t bytes);
    // Whether the network no longer reads what the eager slot for so many bytes held before.
    bool is_eager_sent(uint64_t exchange, size_t bytes) const {
        if (bytes <= most_short_eager_bytes) return unsent_eager_[exchange % eager_slots_kept] == 0;
        for (uint64_t slot = exchange % long_eager_slots_kept; slot < eager_slots_kept;
             slot += long_eager_slots_kept)
            if (unsent_eager_[slot] != 0) return false;
        return true;
    }

    enum class ReceiveState : uint8_t { nothing, here, other_call, too_long };
    // The state of the peer's message with this tag in the current call; once it is `here`, it lies
    // in `buffer`. For `other_call`, `call` is the call that the peer's message belongs to.
    struct Received {
        ReceiveState state = ReceiveState::nothing;
        uint64_t bytes = 0;
        uint64_t call = 0;
    };
    Received receive(uint32_t peer, MessageTag tag, const RecvBuffer &buffer);

    // Tells every remote rank where this rank is.
    void broadcast_status();
    void request_status_of_all(uint64_t call) override;
    void request_status(uint32_t peer, uint64_t call) override;
    // Sends the failure on to other ranks.
    void broadcast_error(const Error &error);
    void broadcast_warning(uint64_t call) override;
    void send_record(uint32_t number, uint64_t version, std::span<const std::byte> bytes,
                     std::span<const uint32_t> remote_ranks) override;
    void flush_records() override;
    // Tells the peers that this rank takes part in no further call, and waits until they have
    // received what it sent them and consumed the data: for a second, and longer while they say
    // that they wait for it.
    void leave();

private:
    // A message from its arrival until a receive has returned it. Either it is unexpected, or a
    // receive has been matched with it: then it lies in the receive's buffer, is being pulled into
    // that buffer, or waits until no rank reads what the buffer held before. An eager slot that has
    // to be pulled is such a message, too, from its arrival until it lies in its place.
    struct UnexpectedMessage {
        MessageHeader header;
        uint64_t bytes = 0;
        std::vector<std::byte> early;    // bytes that came by themselves
        const std::byte *data = nullptr; // the bytes: in `early`, or where the handle keeps them
        RendezvousHandle *handle = nullptr;
        bool is_matched = false, is_pulling = false, is_here = false;
        RecvBuffer buffer;
    };
    using UnexpectedQueue = std::list<UnexpectedMessage>;
    // A receive that was posted before its message came.
    struct PostedReceive {
        uint64_t call = 0, hash = 0;
        MessageTag tag;
        RecvBuffer buffer;
    };
    struct PeerState {
        // The peer wants to hear when this rank begins this call; 0: no call.
        uint64_t requested_call = 0;
        // Bytes of data messages. To the peer: sent, and acknowledged by it. From the peer:
        // consumed here, and what this rank has told it of that.
        uint64_t sent_bytes = 0, acked_bytes = 0, consumed_bytes = 0, advertised_bytes = 0;
        std::vector<PostedReceive> posted; // receives from the peer, in the current call
        bool is_known = false;             // this rank has sent something to the peer
        bool has_acked_goodbye = false;
        bool is_lost = false;
    };

    // Returns the endpoint that a callback of the network is for. Each notes an event, because the
    // result of UCX's progress does not count all of them.
    static RemoteEndpoint &with_event(void *context);
    void on_message(const MessageHeader &header, const void *data, uint64_t bytes,
                    RendezvousHandle *handle);
    void on_sent(SendToken token);
    void on_data_sent(SendToken token);
    void on_pulled(UnexpectedMessage &message, bool whole);
    void take_status(const MessageHeader &header);
    void take_data(const MessageHeader &header, const void *data, uint64_t bytes,
                   RendezvousHandle *handle);
    void take_batch(const MessageHeader &header, const void *data, uint64_t bytes,
                    RendezvousHandle *handle);
    void take_eager(const MessageHeader &header, const void *data, uint64_t bytes,
                    RendezvousHandle *handle);
    // Lets this rank's calls find the bytes of a slot, which have come.
    void deliver_eager(const MessageHeader &header, uint64_t bytes);
    void take_record(const MessageHeader &header, const void *data, uint64_t bytes);
    void answer_status_requests();
    // Drops the messages of earlier calls that no receive has returned. An abandoned call may leave
    // messages, too: only one whose hash differs proves a mismatch. Returns the earliest call with
    // such a message.
    std::optional<uint64_t> drop_unreceived();

    bool is_ours(const MessageHeader &header) const;
    // Any thread may call this, so it reads the latest published call and not the current one.
    CallDescriptor latest_call() const;
    MessageHeader status_request(uint64_t call) const;
    bool is_done_by_all();
    bool is_done_by(uint32_t peer) const;
    bool is_awaited();
    // Progresses until the condition is met, but no longer than `longest`. Returns whether it is
    // met.
    template <class Condition>
    bool progress_until(const Condition &is_met, std::chrono::nanoseconds longest);
    bool has_left(uint32_t peer) const {
        return peer_table_.segments[peer].status().has_left.load(std::memory_order_relaxed) != 0;
    }
    MessageHeader header(MessageKind kind) const;
    // The remote ranks to which this rank sends a failure.
    std::vector<uint32_t> gossip_targets() const;
    void post(uint32_t peer, MessageHeader header, std::span<const NetworkPart> parts = {},
              SendToken token = {}, bool is_eager = true);
    void post_to_all(const MessageHeader &header, std::span<const NetworkPart> parts = {},
                     SendToken token = {});
    void count_busy(std::chrono::steady_clock::time_point since);
    void progress_locked();
    MessageHeader header_of_call(MessageKind kind) const;
    void post_data(uint32_t peer, MessageTag tag, const MessageView &view);
    void add_to_batch(uint32_t peer, MessageTag tag, const MessageView &view);
    void flush_locked();
    // Whether a large message to the peer may go eagerly; `sent_bytes` has it already. If not, the
    // message stays here until the receiver pulls it, which costs a round trip.
    bool is_eager(const PeerState &state, uint64_t bytes) const {
        const uint64_t most = is_line_slow_
                                  ? most_unacked_if_slow(peer_table_.remote_ranks.size(), bytes)
                                  : most_unacked_;
        return state.sent_bytes - state.acked_bytes <= most;
    }
    // Moves the message into the buffer, or begins to pull it. Returns whether all of it lies in
    // the buffer now. False also while a rank reads what the buffer held before.
    bool fill_buffer(UnexpectedMessage &message, const RecvBuffer &buffer);
    void free_buffer(const RecvBuffer &buffer);
    // If a receive has been posted for the message, fills the receive's buffer.
    bool match_posted(UnexpectedMessage &message);
    void post_receive(uint32_t peer, MessageTag tag, const RecvBuffer &buffer);
    void consume(const UnexpectedMessage &message);

    const PeerTable &peer_table_;
    CallHistory &history_;
    SharedError &shared_error_;
    const uint64_t most_unacked_; // bytes that may be unacknowledged at one peer
    bool is_line_slow_ = false;

    mutable std::mutex mutex_;
    std::vector<UnexpectedQueue> unexpected_; // by rank; data that no receive has returned
    size_t unexpected_count_ = 0;             // in all queues
    UnexpectedQueue eager_pulls_;             // eager slots that are being pulled
    std::vector<PeerState> peer_states_;      // by rank
    std::vector<uint32_t> status_requests_;   // peers whose requests await an answer
    std::set<uint32_t> status_waiters_;       // answered peers that still want to hear of a call
    Error failure_;                           // the failure as it is sent on
    uint64_t session_ = 0;
    // Events that `progress` has not reported yet.
    bool has_unreported_events_ = false;
    std::atomic<int64_t> busy_ns_{0};
    std::atomic<uint64_t> unsent_{0};
    std::atomic<uint64_t> unsent_data_{0};
    std::array<std::atomic<uint64_t>, eager_slots_kept> unsent_eager_{}; // messages, by slot
    // What is sent from a copy, so that the caller may change its memory meanwhile: records and
    // batches.
    struct UnsentCopy {
        std::vector<std::byte> bytes;
        size_t messages = 0; // messages that the copy goes with
        bool is_data = false;
    };
    std::map<uint64_t, UnsentCopy> unsent_copies_; // by number
    uint64_t copies_ = 0;
    // Small messages of one call to one peer that are not posted yet. The progress thread may post
    // them, and it must not look at the current call. `bytes` is empty if no message is held.
    struct MessageBatch {
        uint32_t peer = 0;
        CallDescriptor call{};
        uint64_t hash = 0;
        std::vector<std::byte> bytes;
    };
    MessageBatch batch_;
    Network network_; // last: closed before the members that its events use
};

// ---- Progress between calls

class ProgressThread {
public:
    // Called by the thread after each look at the network. `progressed` is an error if an exception
    // ended the look.
    using AfterLook = std::function<void(const Done &progressed)>;
    // `remote`, and what `after_look` refers to, outlive the object.
    static Result<std::unique_ptr<ProgressThread>> start(RemoteEndpoint &remote,
                                                         AfterLook after_look);
    ~ProgressThread();

    // Between the two the rank itself progresses the network. Each costs the rank one store.
    void call_begins() { is_in_call_.store(true, std::memory_order_relaxed); }
    void call_ends() { is_in_call_.store(false, std::memory_order_relaxed); }

private:
    ProgressThread(RemoteEndpoint &remote, AfterLook after_look)
        : remote_(remote), after_look_(std::move(after_look)) {}
    void run();

    RemoteEndpoint &remote_;
    const AfterLook after_look_;
    std::atomic<bool> is_in_call_{false};
    std::mutex mutex_;
    std::condition_variable leaving_;
    bool has_left_ = false;
    ServiceThread thread_; // last: the thread uses the members above
};

} // namespace qccl
