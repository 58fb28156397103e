// The channels by which two ranks of a communicator send and receive. A channel is a communicator
// of these two ranks, made by CommParts::create_child when they first send or receive between them:
// one for each direction, so that what a rank sends does not wait for what it receives. A failure
// of a channel fails the communicator, and a failure of the communicator ends the channel's waits.
// Only the thread that is inside the communicator may use the channels; is_busy, is_running_here,
// counts, close and in_own_ranks may be called by any thread.
#pragma once

#include "base/result.hpp"
#include "comm/comm.hpp"
#include "comm/comm_config.hpp"
#include "comm/streams.hpp"
#include "fault/failure_detector.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace qccl {

// A communicator of two ranks in which `root` sends, and a stream for messages that must not wait
// for one another.
struct PairChannel {
    std::shared_ptr<Comm> comm = nullptr;
    uint32_t root = 0;
    std::unique_ptr<ChannelStream> stream = std::make_unique<ChannelStream>();
};

class PairChannels {
public:
    using Timeout = std::chrono::nanoseconds;

    explicit PairChannels(Comm &comm) : comm_(comm) {}
    PairChannels(const PairChannels &) = delete;

    // Returns the channel on which this rank sends to another one, or receives from it; null: there
    // are none. A channel lives as long as this object.
    const PairChannel *find(uint32_t peer, bool sends) const {
        const ChannelPair *const pair = peer < by_peer_.size() ? by_peer_[peer] : nullptr;
        if (!pair) return nullptr;
        return (comm_.rank() < peer) == sends ? &pair->up : &pair->down;
    }
    // Makes the channels if there are none. Blocks until the peer makes them, too; `timeout` limits
    // this wait (0: no limit).
    Result<const PairChannel *> open(uint32_t peer, bool sends, Timeout timeout);
    // Let the receivers of this rank's messages read what is registered in place, now and on
    // channels to come; end that.
    void share(const Registrations &registrations);
    void deregister(const void *handle);
    void deregister_all();
    // Returns an error of a channel, whose ranks are 0 and 1, as one of the communicator. What its
    // FailureDetector says is about ranks of the communicator already.
    Error in_own_ranks(uint32_t peer, const Error &of_channel) const;
    // Ends what the channels do, because the communicator has failed.
    void give_up();
    // As the functions of Comm with these names, for all channels.
    Done finalize();
    Done conclude();
    bool is_busy() const;
    bool is_running_here() const;
    Counts counts() const;
    void close();

private:
    // The communicator as one of its channels sees it. It also lets the communicator's failure end
    // the channel's waits.
    class Owner final : public MessageOwner {
    public:
        Owner(const PairChannels &pairs, uint32_t peer, bool goes_up);

        void set_channel(Comm &channel) { channel_.store(&channel, std::memory_order_release); }
        MessageEnds ends() const override { return ends_; }
        void look() override;
        void waits(int64_t since_ns, int64_t now_ns) override;
        void wait_done() override;
        std::vector<RankState> states(int64_t now_ns) const override;

    private:
        const PairChannels &pairs_;
        const uint32_t peer_;
        const MessageEnds ends_;
        std::atomic<Comm *> channel_{nullptr}; // null while it is created
    };
    struct ChannelPair {
        std::unique_ptr<Owner> up_owner, down_owner; // channels call them until they have ended
        PairChannel up{}, down{.root = 1};           // the lower rank sends in `up`
    };

    // `sends`: the message for which the channels are made, which this rank is shown to wait in.
    Result<ChannelPair> create(uint32_t peer, bool sends, Timeout timeout);
    Result<std::shared_ptr<Comm>> create_one(uint32_t peer, bool sends, Timeout timeout,
                                             Owner &owner);
    // Returns the error with which the wait for the peer ends, if there is one.
    Done check_creation(uint32_t peer) const;
    // Each channel, with its peer.
    std::vector<std::pair<uint32_t, std::shared_ptr<Comm>>> all() const;
    // The channel on which this rank sends to the peer, and all such channels.
    const std::shared_ptr<Comm> &outgoing(uint32_t peer, const ChannelPair &pair) const;
    std::vector<std::shared_ptr<Comm>> outgoing() const;
    template <class Visitor> Done each(Visitor visit) const;

    Comm &comm_;
    mutable std::mutex mutex_;                 // protects the map, not the channels
    std::map<uint32_t, ChannelPair> pairs_;    // by peer
    std::vector<const ChannelPair *> by_peer_; // for the thread inside; null: none; empty: no pairs
};

} // namespace qccl
