// A transport over segments, which the ranks of a host share, and over a network to the ranks of
// other hosts. The shm and inproc transports are made of it. Transport says which threads may call
// its functions and which of them block.
#pragma once

#include "fault/failure_detector.hpp"
#include "fault/survivor_exchange.hpp"
#include "memory/large_calls.hpp"
#include "memory/local_messages.hpp"
#include "trace/recorder.hpp"
#include "transport/peer_info.hpp"
#include "transport/remote_endpoint.hpp"

namespace qccl {

// Returns the function that reports the host's free memory in bytes: the one from the options, or
// else the kernel's figure.
std::function<size_t()> free_memory_of(const TransportOptions &options);

class SharedTransport final : public Transport {
public:
    SharedTransport(const char *name, PeerTable peer_table, LivenessMonitor liveness,
                    const PeerInfoTable &peer_info, Recorder recorder,
                    const TransportOptions &options);
    ~SharedTransport() override { leave(); }
    SharedTransport(const SharedTransport &) = delete;

    // For ranks of other hosts, once, before the first call. `use` takes an end of the network that
    // was opened with these events and knows all remote ranks, and a secret that all ranks share.
    // `add_connection` takes a keepalive connection to `rank`; `host_ranks` are the ranks of that
    // host.
    NetworkEvents network_events() { return remote_->events(); }
    Done use(Network network, uint64_t session);
    void add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                        FileDescriptor connection) {
        detector_.add_connection(rank, host_ranks, std::move(connection));
    }

    const char *name() const override { return name_.c_str(); }
    void use_line_rate(double bytes_per_ns) override {
        const auto sharing = static_cast<double>(peer_table_.local_ranks.size());
        if (remote_) remote_->use_line_rate(bytes_per_ns / sharing);
    }
    std::chrono::nanoseconds network_time() const override {
        return remote_ ? remote_->busy_time() : std::chrono::nanoseconds(0);
    }
    Done begin(const CallShape &shape, const CallNumbers &numbers, std::chrono::nanoseconds timeout,
               Publishes when) override;
    bool can_begin_next() const override;
    Done await_all() override;
    Result<bool> have_all_begun() override;
    uint64_t calls_hash() const override { return history_.hash(); }
    Done confirm_calls(std::chrono::nanoseconds timeout) override;

    bool is_free(uint32_t slot) const override {
        return peer_table_.mine().readers(slot).count.load(std::memory_order_acquire) == 0;
    }

    Result<std::span<std::byte>> overflow(size_t bytes) override;

    Result<bool> send(uint32_t peer, MessageTag tag, const MessageView &view, Sends when) override;
    Result<std::optional<MessageView>> receive(uint32_t peer, MessageTag tag,
                                               const RecvBuffer &buffer) override;
    void release(const MessageView &view) override;

    Done end() override;
    bool can_end() override {
        if (remote_) remote_->flush();
        return !remote_ || !remote_->has_unsent_data();
    }
    Done await_ended(uint64_t call) override;

    Windows &windows() override { return windows_; }
    void keep_overflow(std::function<Done(const MappedMemory &)> on_open) override {
        for (const uint32_t local : peer_table_.local_ranks)
            peer_table_.overflows[local]->keep(on_open);
    }

    Result<std::byte *> eager_slot(size_t bytes) override;
    Done await_latest_exchange() override { return await_posted(exchange_); }
    void post_eager(size_t bytes) override;
    Result<std::span<const std::byte>> await_eager(uint32_t peer) override;
    bool is_eager_slot_free(size_t bytes) const override;
    bool has_next_eager(uint32_t peer) const override {
        return has_posted_here(peer, exchange_ + 1);
    }
    Done exchange(EagerExchange &call) override;

    Done wait(const Wait &what) override;
    void progress() override {
        if (remote_) remote_->handle_events();
    }
    void wait_done() override { detector_.wait_done(); }

    void fail(const Error &error) override;
    std::optional<Error> failure() const override;
    bool has_failed() const override { return shared_error_.is_set(); }
    void ignore_failure() override;
    bool claim_log() override { return shared_error_.claim_log(); }
    SurvivorExchange &survivor_exchange() override { return survivors_; }
    void message_waits(const MessageWait &wait, int64_t since_ns, int64_t now_ns) override;
    void message_wait_done() override;
    std::vector<RankState> states(int64_t now_ns) const override {
        return published_states(peer_table_, history_, now_ns);
    }
    void leave() override;

private:
    // This rank's state for one peer.
    struct Peer {
        Outbound outbound;
        Inbound inbound;
        uint64_t seen = 0; // an exchange in which it has posted; perhaps it has in later ones
    };

    // Publishes the current call to the other ranks if it is not published yet: after this rank's
    // first eager slot of the call, and before it waits for any rank.
    void publish_call();
    bool has_described(uint32_t peer, uint64_t call) const;
    template <class Condition> Done await_rank(uint32_t peer, const Condition &has_come);
    Done await_call_slot(uint64_t call);
    void announce_call();
    Result<std::optional<MessageView>> receive_remote(uint32_t peer, MessageTag tag,
                                                      const RecvBuffer &buffer);
    // Every function that returns the communicator's failure passes it through here: sends it to
    // the other hosts, once, marks it in the flight record, and ends the call. Returns `recorded`.
    Error report_failure(const Error &recorded);
    // Fails all ranks because they have begun different calls, `call` or one before it.
    Error mismatch(uint64_t call);
    // Does the same on ranks that shrink the communicator: a rank has begun `call`, which this rank
    // has not.
    Error mismatch_of_shrink(uint64_t call);
    void broadcast_error(const Error &error);
    void drop_unexpected();
    // Whether `begin`, `eager_slot` and `end` have nothing to do besides this call's own.
    bool is_plain(const EagerExchange &call) const {
        return !remote_ && unexpected_count_ == 0 && !has_overflow_ &&
               call.numbers.call < begun_by_all_ + history_.calls_kept() &&
               exchange_before(exchange_ + 1, call.bytes) <= posted_by_all_ &&
               !shared_error_.is_set();
    }
    void post_eager(EagerHeader &head, size_t bytes);
    Done await_posted(uint64_t exchange);
    Done await_posted_by(uint32_t peer, uint64_t exchange);
    Done check_hash(const EagerHeader &head);
    // Whether the peer's slot of the exchange, or of a later one in its place, is here.
    bool has_posted(uint32_t peer, uint64_t exchange) const;
    // The same, and false for a peer on another host.
    bool has_posted_here(uint32_t peer, uint64_t exchange) const;
    // Returns the next message from a local peer in this call; null: none has come. A message of
    // another call is a mismatch.
    Result<const Mail *> next_mail(uint32_t peer);
    Result<MessageView> view(const Mail &mail);
    // Returns the offset of the bytes from the start of the origin's outbox. The origin's inbox,
    // and the overflow memory that it has for this call, count as the bytes that follow.
    uint64_t offset_of(const MessageView &view) const;
    Result<std::span<std::byte>> overflow_of(uint32_t origin);
    void give_back_overflows();
    // Sends what is queued for other hosts, and waits until it has left.
    Done await_sent();
    Done drain();

    std::string name_;
    PeerTable peer_table_;
    CallHistory history_;
    SharedError shared_error_;
    Recorder recorder_;
    std::unique_ptr<RemoteEndpoint> remote_; // null if all ranks are local
    FailureDetector detector_;
    SurvivorExchange survivors_;
    Windows windows_;
    std::vector<Peer> peers_;     // by rank
    size_t unexpected_count_ = 0; // in all queues of unexpected messages
    // Lower bounds: every rank has begun the call `begun_by_all_`, and every other rank has posted
    // in the exchange `posted_by_all_`. Perhaps all have come further; a rank looks only when it
    // needs to know more, since a look reads a cache line of every peer.
    uint64_t begun_by_all_ = 0, posted_by_all_ = 0;
    bool is_call_published_ = true;
    std::atomic<bool> has_broadcast_error_{false};
    const std::function<size_t()> free_memory_;
    bool has_overflow_ = false;       // some rank's overflow memory is open here
    RecentLargeCall recent_overflow_; // large: some rank needed overflow memory
    uint64_t exchange_ = 0;           // latest in which this rank has posted its slot
    uint64_t exchange_call_ = 0, exchange_hash_ = 0; // as in its slot's header
    size_t fetched_bytes_ = 0; // of a slot with its header, to prefetch with each look at it
    std::unique_ptr<ProgressThread> progress_thread_; // null if all are local; last: uses others
};

} // namespace qccl
