// How a rank waits: it spins, then yields, then sleeps. Before each sleep the rank checks what may
// have gone wrong: a failure elsewhere, a peer that has died or left, a peer in another call, a
// wait that lasts too long. Its warnings and errors say what every rank does at the moment, as far
// as this rank can tell. Used by SharedTransport and SurvivorExchange on the
// thread that runs the rank's calls; `failure`, `send_goodbye` and `send_error` may be called by
// any thread. `block`, `mismatch` and `lose` block.
//
// A channel is a communicator that carries the messages of two ranks of another one. Its users know
// the ranks of that other communicator alone. So what a channel's FailureDetector says is about
// those ranks, and its waits are shown there, too (`MessageOwner`).
#pragma once

#include "fault/liveness.hpp"
#include "fault/published_state.hpp"
#include "trace/rank_record.hpp"
#include "trace/recorder.hpp"

namespace qccl {

// ---- States of all ranks

// Returns one state for each rank, by rank, as the ranks publish them: whether a process has ended
// is not in them. Any thread may call. `now_ns` is in the clock of RankStatus::awake_ns.
std::vector<RankState> published_states(const PeerTable &peer_table, const CallHistory &history,
                                        int64_t now_ns);

// ---- Waits of a channel

// The communicator whose messages a channel carries. Any thread may call.
class MessageOwner {
public:
    virtual MessageEnds ends() const = 0;
    // Called in long waits of the channel, in place of the search for deadlocks that calls of a
    // communicator make.
    virtual void look() = 0;
    // Shows to the ranks of the communicator that this rank waits in a message. `wait_done` is
    // called after it.
    virtual void waits(int64_t since_ns, int64_t now_ns) = 0;
    virtual void wait_done() = 0;
    // As published_states.
    virtual std::vector<RankState> states(int64_t now_ns) const = 0;

protected:
    ~MessageOwner() = default;
};

// ---- Waits

class FailureDetector {
public:
    using Clock = std::chrono::steady_clock;
    using Time = std::chrono::nanoseconds;

    // Spin time where each rank has a core of its own.
    static constexpr Time usual_spin = std::chrono::microseconds(20);

    struct Options {
        Time spin{};
        bool spins_beside_others = false; // spin also on a core that turns out to be shared
        Time warn_after{};
        Time peer_timeout{};
        std::function<void(const char *)> warn;
        std::function<void()> idle;
        MessageOwner *owner = nullptr; // of a channel
    };

    // `remote`: reaches the ranks of other hosts; null if there are none.
    FailureDetector(const PeerTable &peer_table, const CallHistory &history,
                    SharedError &shared_error, Recorder &recorder, LivenessMonitor liveness,
                    RemoteRanks *remote, Options options);

    // Bounds every wait from now on; 0 means no limit.
    void limit(Time timeout) { timeout_ = timeout; }

    // The first, short part of a wait: spins or yields once. Returns false when that part is over;
    // the caller goes on with `block`.
    bool spin();
    // One step of the long part: checks for failures, then sleeps. The caller repeats it and looks
    // between two steps for what it waits for. Returns the error that ends the wait.
    Done block(const Wait &what);
    // The caller's wait is over.
    void wait_done() {
        if (looks_ != 0) end();
    }

    // Called when ranks are known to disagree about `call` or an earlier one. Waits until the first
    // call in which they differ can be named, fails all ranks, and returns the recorded error.
    Error mismatch(uint64_t call);
    // Called when this rank cannot write to the peer. Fails all ranks and returns the recorded
    // error.
    Error lose(uint32_t peer);

    // Looks at the processes of all ranks and at what ranks of other hosts have reported since the
    // last look; records a failure that they report. Also for use between calls.
    void check_liveness();
    // Whether a caller that does not wait and comes often should look at what other hosts report.
    // False if it was told to just now, because a look costs system calls.
    bool is_look_due();
    // Whether the peer takes part in no further call, or cannot: its process has ended, it has
    // left, or it is unreachable.
    bool is_gone(uint32_t peer) const;
    // The communicator's failure, whichever rank recorded it; none if it has not failed.
    std::optional<Error> failure() const { return shared_error_.failure(); }
    // Tells ranks of other hosts that this rank leaves in good order or knows that the communicator
    // has failed.
    void send_goodbye() const { liveness_.send_goodbye(); }
    // Sends the failure to ranks of other hosts over the keepalive connections.
    void send_error(const Error &error) const { liveness_.send_error(error); }
    void add_connection(uint32_t rank, const std::vector<uint32_t> &host_ranks,
                        FileDescriptor connection) {
        liveness_.add_connection(rank, host_ranks, std::move(connection));
    }

private:
    void end();
    // Whether other threads run on this rank's core, as recent yields have shown.
    bool shares_core() const;
    void show(const Wait &what) const;
    // The time limit is for peers, not for the rank's own device.
    Done examine(const Wait &what);
    Done check_peers(uint32_t on);
    Done check_time(uint32_t on);
    bool has_left(uint32_t peer) const;
    void sleep(Time longest);
    // Whether to ask the ranks of other hosts where they are, so that their answers are here when a
    // warning or a timeout has to name one of them.
    bool is_time_to_ask() const;
    // The lowest rank whose version of the call must be known before the rank that differs can be
    // named; none if no more is needed.
    std::optional<uint32_t> missing_witness(uint64_t call) const;
    std::optional<Error> await_difference(uint64_t call);
    Error lost(uint32_t peer) const;
    std::optional<uint32_t> awaited_by(uint32_t peer) const;
    uint32_t culprit(uint32_t on) const;
    uint32_t slow_reader(uint32_t otherwise) const;
    void warn(uint32_t on);
    // What all ranks do, as far as this rank can tell.
    std::vector<RankState> states() const;
    // The rank and the current call, as the user knows them. A message has no number.
    uint32_t shown(uint32_t rank) const { return ends_ ? ends_->rank_of(rank) : rank; }
    std::string shown_call(const char *behind_number = "") const;
    const MessageEnds *ends() const { return ends_ ? &*ends_ : nullptr; }

    const PeerTable &peer_table_;
    const CallHistory &history_;
    SharedError &shared_error_;
    Recorder &recorder_;
    LivenessMonitor liveness_;
    RemoteRanks *remote_;
    Options options_;
    const std::optional<MessageEnds> ends_; // of a channel
    Waiter waiter_;
    Time timeout_{};
    uint32_t idle_yields_; // consecutive yields that returned at once
    Clock::time_point looked_in_passing_;

    // State of the current wait.
    uint32_t looks_ = 0;
    Clock::time_point since_;
    Clock::time_point now_;
    Time nap_{};
    std::optional<uint32_t> suspect_; // the peer that seemed lost at the last look
    bool has_warned_ = false;
    bool has_asked_ = false; // has asked all remote ranks
    Time asked_{};           // how long the wait had lasted when it last asked the awaited rank
};

} // namespace qccl
