// A transport over memory that the ranks of a host map, one segment each, and over a network to
// those of other hosts. Knows not how the memory was made.
#pragma once

#include "transport/attendant.hpp"
#include "transport/council.hpp"
#include "transport/mailbox.hpp"
#include "transport/recorder.hpp"
#include "transport/roster.hpp"
#include "transport/vigil.hpp"
#include "transport/windows.hpp"

namespace qccl {

class SharedTransport final : public Transport {
public:
    SharedTransport(const char *name, Party party, Lifelines lifelines, const Roster &roster,
                    Recorder recorder, const TransportOptions &options);
    ~SharedTransport() override { leave(); }
    SharedTransport(const SharedTransport &) = delete;

    // Once, before the first call, where some ranks are far: an end of the network that was opened
    // with these events and knows all far ranks, the secret that all ranks share, and the
    // connections that show that some of them live.
    NetworkEvents network_events() { return courier_->events(); }
    Done use(Network network, uint64_t session);
    void add_connection(uint32_t rank, const std::vector<uint32_t> &neighbours,
                        FileDescriptor connection) {
        vigil_.add_connection(rank, neighbours, std::move(connection));
    }

    const char *name() const override { return name_.c_str(); }
    std::chrono::nanoseconds network_time() const override {
        return courier_ ? courier_->time_at_work() : std::chrono::nanoseconds(0);
    }
    uint32_t rank() const override { return party_.rank; }
    uint32_t size() const override { return party_.size(); }
    uint64_t session() const override { return session_; }
    double ranks_per_core() const override { return ranks_per_core_; }

    Done begin(const CallDescriptor &shape, const CallNumbers &numbers,
               std::chrono::nanoseconds timeout, Publishes when) override;
    Done meet() override;
    uint64_t calls_hash() const override { return history_.hash(); }
    Done confirm_calls(std::chrono::nanoseconds timeout) override;

    std::span<std::byte> outbox() override { return party_.mine().outbox(); }
    uint32_t slots() const override { return shape_.slots; }
    std::span<std::byte> inbox() override { return party_.mine().inbox(); }
    bool is_free(uint32_t slot) const override {
        return party_.mine().readers(slot).count.load(std::memory_order_acquire) == 0;
    }

    Result<std::span<std::byte>> overflow(size_t bytes) override;

    Result<bool> send(uint32_t peer, MessageTag tag, const Wire &wire, Sends when) override;
    Result<std::optional<Wire>> receive(uint32_t peer, MessageTag tag, const Room &room) override;
    void release(const Wire &wire) override;

    Done end() override;
    Done await_ended(uint64_t call) override;

    bool show(const OwnMemory &memory) override { return windows_.show(memory); }
    void hide(const std::byte *base) override { windows_.hide(base); }
    void look_at_windows() override { windows_.look(); }
    Loan lend(const void *data, size_t bytes) const override;
    void use_device_memory(std::vector<std::span<std::byte>> by_rank) override {
        windows_.use_device_memory(std::move(by_rank));
    }
    std::vector<std::span<std::byte>> arenas() override;
    void keep_overflow(std::function<Done(const MappedMemory &)> on_open) override {
        for (const uint32_t near : party_.near_ranks) party_.overflows[near]->keep(on_open);
    }

    size_t line_bytes() const override { return shape_.line_bytes; }
    Result<std::byte *> line() override;
    void publish(size_t bytes) override;
    Result<std::span<const std::byte>> await_line(uint32_t peer) override;

    Done wait(const Wait &what) override;
    void progress() override {
        if (courier_) courier_->progress();
    }
    void came() override { vigil_.came(); }

    void fail(const Error &error) override;
    std::optional<Error> failure() const override;
    void ignore_failure() override;
    bool is_ours_to_tell() override { return verdict_.is_ours_to_tell(); }
    Council &council() override { return council_; }
    void leave() override;

private:
    // What this rank knows of another.
    struct Peer {
        Outbound outbound;
        Inbound inbound;
        uint64_t seen = 0; // latest exchange in which its line has been seen
    };

    // Tells the others which call this rank is in, if they have not been told: behind its first
    // line, and before it waits for anybody.
    void publish_call();
    bool has_described(uint32_t peer, uint64_t call) const;
    template <class Condition> Done await_rank(uint32_t peer, const Condition &has_come);
    Done keep_together(uint64_t call);
    Result<std::optional<Wire>> receive_far(uint32_t peer, MessageTag tag, const Room &room);
    // Whoever has a failure tells the other hosts, once, and those who look from outside, and goes
    // on in no call.
    Error told(const Error &standing);
    Error mismatch(uint64_t call);
    // For ranks that shrink the communicator: a rank has begun `call`, which this rank has not.
    Error mismatch_of_shrink(uint64_t call);
    void spread(const Error &error);
    void clear_shelves();
    Result<const LineHead *> await_exchange(uint32_t peer);
    // What comes next from the peer in this call; null: nothing has come.
    Result<const Mail *> next_mail(uint32_t peer);
    Result<Wire> view(const Mail &mail);
    // How far the bytes lie behind the start of the origin's outbox: its inbox and the memory that
    // it has for this call count as what follows.
    uint64_t offset_of(const Wire &wire) const;
    Result<std::span<std::byte>> overflow_of(uint32_t origin);
    void close_overflows();
    Done drain();

    std::string name_;
    const uint64_t session_;
    const double ranks_per_core_;
    Party party_;
    SegmentShape shape_;
    CallHistory history_;
    Verdict verdict_;
    Recorder recorder_;
    std::unique_ptr<Courier> courier_; // null where all ranks are near
    Vigil vigil_;
    Council council_;
    Windows windows_;
    std::vector<Peer> peers_; // by rank
    size_t shelved_ = 0;      // messages on all shelves
    uint64_t together_ = 0;   // every rank has begun this call
    bool is_call_published_ = true;
    std::atomic<bool> has_spread_{false};
    const std::function<size_t()> free_memory_;
    bool has_overflow_ = false; // some view of an overflow is open
    uint64_t exchange_ = 0;     // latest in which this rank has published its line
    uint64_t exchange_call_ = 0, exchange_hash_ = 0; // as its line's head has them
    size_t fetched_bytes_ = 0; // of a line with its head, whenever this rank looks for one
    std::unique_ptr<Attendant> attendant_; // null likewise; last: it uses the others
};

} // namespace qccl
