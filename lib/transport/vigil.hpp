// How a rank waits: it spins, yields, sleeps, and before each sleep looks at what may have gone
// wrong: a failure elsewhere, a dead or departed rank, a rank in another call, too much time. Knows
// not what the rank waits for.
#pragma once

#include "transport/call_history.hpp"
#include "transport/courier.hpp"
#include "transport/lifelines.hpp"
#include "transport/recorder.hpp"
#include "transport/verdict.hpp"

namespace qccl {

class Vigil {
public:
    using Clock = std::chrono::steady_clock;
    using Time = std::chrono::nanoseconds;

    // Where each rank has a core for itself.
    static constexpr Time usual_spin = std::chrono::microseconds(20);

    struct Options {
        Time spin{};
        bool spins_beside_others = false; // also on a core that turns out to be shared
        Time warn_after{};
        Time peer_timeout{};
        std::function<void(const char *)> warn;
        std::function<void()> idle;
    };

    // `courier`: to the ranks of other hosts; null where there are none.
    Vigil(const Party &party, const CallHistory &history, Verdict &verdict, Recorder &recorder,
          Lifelines lifelines, Courier *courier, Options options);

    // Waits from now on may last so long; 0 is for ever.
    void limit(Time timeout) { timeout_ = timeout; }

    // The first, short part of a wait. False: it is over, go on with `keep`.
    bool linger();
    // One step of the long part: to be repeated, with a look between.
    Done keep(const Wait &what);
    // The wait is over.
    void came() {
        if (looks_ != 0) end();
    }

    // Ranks are known to disagree about the call or one before it: waits until the first call in
    // which they differ can be named, and fails all ranks.
    Error mismatch(uint64_t call);
    // The peer cannot be written to: fails everyone.
    Error lose(uint32_t peer);

    // Between calls: what ranks of other hosts have said in the meantime.
    void listen();
    // It takes part in no further call, or cannot: it has ended, has left, or is out of reach.
    bool is_gone(uint32_t peer) const;
    // Of the communicator, by whatever rank.
    std::optional<Error> failure() const { return verdict_.failure(); }
    // This rank leaves in good order, or knows that the communicator has failed.
    void say_farewell() const { lifelines_.say_farewell(); }
    void tell(const Error &verdict) const { lifelines_.tell(verdict); }
    void add_connection(uint32_t rank, const std::vector<uint32_t> &neighbours,
                        FileDescriptor connection) {
        lifelines_.add_connection(rank, neighbours, std::move(connection));
    }

private:
    void end();
    // A yield lets another thread run on this rank's core.
    bool shares_core() const;
    void show(const Wait &what) const;
    Done examine(uint32_t on);
    Done check_peers(uint32_t on);
    Done check_time(uint32_t on);
    bool has_left(uint32_t peer) const;
    void sleep(Time longest);
    // When ranks of other hosts are asked where they are, so that the answers are there when one of
    // them is to be named.
    bool is_time_to_ask() const;
    // The lowest rank whose version of the call has to be known before it can be said which rank
    // differs.
    std::optional<uint32_t> missing_witness(uint64_t call) const;
    std::optional<Error> await_difference(uint64_t call);
    Error lost(uint32_t peer) const;
    std::optional<uint32_t> awaited_by(uint32_t peer) const;
    uint32_t culprit(uint32_t on) const;
    uint32_t slow_reader(uint32_t otherwise) const;
    void warn(uint32_t on);
    // With what all ranks do, as far as this one can tell.
    Error explained(const Error &error) const;

    const Party &party_;
    const CallHistory &history_;
    Verdict &verdict_;
    Recorder &recorder_;
    Lifelines lifelines_;
    Courier *courier_;
    Options options_;
    Sleeper sleeper_;
    Time timeout_{};
    uint32_t vain_yields_; // consecutive ones that returned at once

    // Of the wait at hand.
    uint32_t looks_ = 0;
    Clock::time_point since_;
    Clock::time_point now_;
    Time nap_{};
    std::optional<uint32_t> suspect_; // seemed lost at the last look
    bool has_warned_ = false;
    bool has_asked_ = false; // all far ranks
    Time asked_{};           // the awaited rank, after so long
};

} // namespace qccl
