// Reads the states of ranks from their segments. Makes the steps of a wait, and the messages of its
// warnings and errors.
#include "fault/failure_detector.hpp"

#include "base/clock.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <thread>

#include <sched.h>

namespace qccl {

// ---- States of all ranks

static RankState rank_state(const PeerTable &peer_table, const CallHistory &history, uint32_t rank,
                            int64_t now_ns) {
    const RankStatus &status = peer_table.segments[rank].status();
    RankState state{.rank = rank};
    // `ended` is read first: if the rank goes on meanwhile, it still does not seem to have ended a
    // call that it has not begun.
    state.ended = status.ended.load(std::memory_order_acquire);
    state.begun = history.begun(rank);
    state.call = history.find(rank, state.begun);
    state.is_remote = !peer_table.is_local(rank);
    state.has_left = status.has_left.load(std::memory_order_acquire) != 0;
    const uint32_t waits_on = status.waits_on.load(std::memory_order_acquire);
    const auto message = MessageWait::of(status.message_wait.load(std::memory_order_acquire));
    if (message && message->peer < peer_table.size() && !state.is_in_call())
        state.wait = message->shown();
    else if (waits_on != 0 && waits_on <= peer_table.size())
        state.wait = Wait(waits_on - 1);
    else
        return state;
    // What a remote rank has told says nothing about the time since.
    if (!state.is_remote)
        state.silent_ns = now_ns - status.awake_ns.load(std::memory_order_relaxed);
    return state;
}

std::vector<RankState> published_states(const PeerTable &peer_table, const CallHistory &history,
                                        int64_t now_ns) {
    std::vector<RankState> states;
    for (uint32_t rank = 0; rank < peer_table.size(); rank++)
        states.push_back(rank_state(peer_table, history, rank, now_ns));
    return states;
}

// ---- Waits

namespace {

using namespace std::chrono_literals;

// Reading the clock costs as much as several looks at memory.
constexpr uint32_t looks_per_clock = 16;
// Where other threads need the core, a rank that yields finds a message within a microsecond or
// two, and a rank that sleeps needs tens of microseconds. Where no thread needs the core, yielding
// burns it.
constexpr FailureDetector::Time yielding = 1ms;
// If a yield takes longer than `shortest_turn`, another thread had a turn on this core and soon
// gave the core back: most likely a rank that this rank waits for, even if that rank could have had
// another core. Then the next waits do not spin. A thread that keeps the core for `longest_turn` or
// more only computes, and it does not pay to yield to that thread.
constexpr FailureDetector::Time shortest_turn = 1us;
constexpr FailureDetector::Time longest_turn = 100us;
// Linux does not let another thread run at each yield: not while its scheduler finds this thread
// behind the others, and not across autogroups, which Linux makes of sessions. So a rank takes the
// core for its own only after this many vain yields.
constexpr uint32_t yields_alone = 64;
constexpr FailureDetector::Time shortest_nap = 1ms;
constexpr FailureDetector::Time longest_nap = 50ms;
// Between two looks at a device, which does not wake the rank.
constexpr FailureDetector::Time brief_nap = 50us;
// A waiting rank looks around after each nap. A rank that has not looked for this long is stopped.
constexpr FailureDetector::Time stale = 1s;
// In a long wait for a rank of another host, asking that rank for its status shows whether the rank
// can still be reached, and tells a rank that leaves that it is waited for: it stays for a second.
constexpr FailureDetector::Time between_status_requests = 500ms;
// This long before the end of a wait, ranks of other hosts are asked for their status.
constexpr FailureDetector::Time longest_status_reply = 1s;
// Delay between the warnings of different hosts, so that a host learns in time that another host
// has warned, and does not warn itself.
constexpr FailureDetector::Time between_hosts_warnings = 500ms;
constexpr FailureDetector::Time between_looks_at_disagreement = 200us;
// A failure travels between hosts for about as long, so nobody can tell that it was seen no sooner.
constexpr FailureDetector::Time between_looks_in_passing = 100us;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

int64_t count_ns(FailureDetector::Clock::time_point time) {
    return FailureDetector::Time(time.time_since_epoch()).count();
}

} // namespace

FailureDetector::FailureDetector(const PeerTable &peer_table, const CallHistory &history,
                                 SharedError &shared_error, Recorder &recorder,
                                 LivenessMonitor liveness, RemoteRanks *remote, Options options)
    : peer_table_(peer_table), history_(history), shared_error_(shared_error), recorder_(recorder),
      liveness_(std::move(liveness)), remote_(remote), options_(std::move(options)),
      ends_(options_.owner ? std::optional(options_.owner->ends()) : std::nullopt),
      waiter_(peer_table.mine().bell(), peer_table.fences), idle_yields_(yields_alone) {
    if (!remote_) return;
    // All ranks of a host wait equally long: once one of them has warned, the others do not.
    options_.warn_after += std::min(peer_table.local_ranks.front(), 10U) * between_hosts_warnings;
}

bool FailureDetector::shares_core() const {
    return !options_.spins_beside_others && idle_yields_ < yields_alone;
}

bool FailureDetector::spin() {
    const Time spin = shares_core() ? Time{} : options_.spin;
    const uint32_t look = looks_++;
    if (spin != Time{}) {
        relax();
        // A wait that is over within a few looks does not read the clock at all.
        if (look % looks_per_clock != looks_per_clock - 1) return true;
    }
    now_ = Clock::now();
    if (since_ == Clock::time_point()) since_ = now_;
    const Time waited = now_ - since_;
    if (waited < spin) return true;
    if (waited >= spin + yielding) return false;
    sched_yield();
    const Time away = Clock::now() - now_;
    if (away >= longest_turn)
        idle_yields_ = yields_alone;
    else
        idle_yields_ = away > shortest_turn ? 0 : std::min(idle_yields_ + 1, yields_alone);
    return true;
}

Done FailureDetector::block(const Wait &what) {
    if (!waiter_.is_prepared()) {
        waiter_.prepare();
        nap_ = shortest_nap;
        return {};
    }
    const auto suspect = suspect_;
    show(what);
    QCCL_TRY(examine(what));
    // The last message of a lost rank may have come since the last look, so the caller looks again.
    if (suspect_ != suspect) return {};
    sleep(what.is_brief ? brief_nap : nap_);
    nap_ = std::min(2 * nap_, longest_nap);
    return {};
}

void FailureDetector::sleep(Time longest) {
    if (!remote_) return waiter_.sleep(longest);
    if (remote_->arm()) waiter_.sleep(longest, peer_table_.bell, remote_->descriptor());
}

void FailureDetector::end() {
    looks_ = 0;
    since_ = Clock::time_point();
    if (!waiter_.is_prepared()) return;
    waiter_.cancel();
    peer_table_.mine().status().waits_on.store(0, std::memory_order_relaxed);
    recorder_.wait_done();
    if (options_.owner) options_.owner->wait_done();
    suspect_.reset();
    has_warned_ = false;
    has_asked_ = false;
    asked_ = {};
}

void FailureDetector::show(const Wait &what) const {
    RankStatus &status = peer_table_.mine().status();
    status.awake_ns.store(count_ns(now_), std::memory_order_relaxed);
    // A rank whose device computes is busy; nobody else delays it.
    const uint32_t waits_on = what.phase == WaitPhase::device ? 0 : what.on + 1;
    status.waits_on.store(waits_on, std::memory_order_release);
    recorder_.waits(what, count_ns(since_), count_ns(now_));
    if (options_.owner) options_.owner->waits(count_ns(since_), count_ns(now_));
}

Done FailureDetector::examine(const Wait &what) {
    if (const auto failure = shared_error_.failure()) return *failure;
    if (options_.idle) options_.idle();
    QCCL_TRY(check_peers(what.on));
    for (uint32_t peer = 0; peer < peer_table_.size(); peer++)
        if (const auto call = history_.disagreement(peer)) return mismatch(*call);
    return what.phase == WaitPhase::device ? Done() : check_time(what.on);
}

bool FailureDetector::has_left(uint32_t peer) const {
    return peer_table_.segments[peer].status().has_left.load(std::memory_order_acquire) ||
           liveness_.has_left(peer);
}

bool FailureDetector::is_gone(uint32_t peer) const {
    return liveness_.has_ended(peer) || has_left(peer) || (remote_ && remote_->is_lost(peer));
}

void FailureDetector::check_liveness() {
    liveness_.poll_descriptors();
    if (const auto &received = liveness_.received_error())
        (void)shared_error_.set_once(
            sanitize_remote(received->error, received->from, peer_table_.size()));
}

bool FailureDetector::is_look_due() {
    const auto now = Clock::now();
    if (now - looked_in_passing_ < between_looks_in_passing) return false;
    looked_in_passing_ = now;
    return true;
}

Done FailureDetector::check_peers(uint32_t on) {
    check_liveness();
    if (liveness_.received_error()) return *shared_error_.failure();
    for (uint32_t peer = 0; peer < peer_table_.size(); peer++) {
        if (peer == peer_table_.rank || !is_gone(peer)) continue;
        // A peer that has left in good order is missed only by ranks that still wait for it. The
        // same holds for an unreachable peer, since it may have left in good order.
        const bool in_order = has_left(peer) || !liveness_.has_ended(peer);
        if (in_order && peer != on && history_.begun(peer) >= history_.current().call) continue;
        if (in_order && remote_ && remote_->has_matched_data_from(peer)) continue;
        if (suspect_ == peer) return shared_error_.set_once(lost(peer));
        suspect_ = peer;
        return {};
    }
    return {};
}

Error FailureDetector::lose(uint32_t peer) {
    // Sends may fail before the ranks that know the reason have reported it.
    const auto patience = std::min(options_.peer_timeout, longest_status_reply);
    for (const auto deadline = Clock::now() + patience; Clock::now() < deadline;) {
        if (const auto failure = shared_error_.failure()) return *failure;
        remote_->progress();
        check_liveness();
        if (has_left(peer) || liveness_.has_ended(peer)) break;
        std::this_thread::sleep_for(between_looks_at_disagreement);
    }
    return shared_error_.set_once(lost(peer));
}

Error FailureDetector::lost(uint32_t peer) const {
    const std::string what = shown_call();
    if (has_left(peer))
        return Error::make(Code::peer_lost, "rank %u has left the communicator; %s waits for it",
                           shown(peer), shown_call(",").c_str())
            .at_rank(peer);
    const char *when = history_.begun(peer) < history_.current().call ? "before" : "during";
    // From another host, a process that has ended looks the same as a link that is down.
    if (!peer_table_.is_local(peer))
        return Error::make(Code::peer_lost,
                           "rank %u (pid %" PRId64 " of another host) died or cannot be reached "
                           "%s %s",
                           shown(peer), peer_table_.pids[peer], when, what.c_str())
            .at_rank(peer);
    return Error::make(Code::peer_lost, "rank %u (pid %" PRId64 ") died %s %s", shown(peer),
                       peer_table_.pids[peer], when, what.c_str())
        .at_rank(peer);
}

std::string FailureDetector::shown_call(const char *behind_number) const {
    if (ends_)
        return "a message from rank " + std::to_string(ends_->sender) + " to rank " +
               std::to_string(ends_->receiver);
    const CallDescriptor &call = history_.current();
    return name(call.collective) + (", call " + std::to_string(call.call)) + behind_number;
}

bool FailureDetector::is_time_to_ask() const {
    const Time waited = now_ - since_;
    const auto is_near_end = [&](Time end) {
        return waited < end && waited >= end - std::min(longest_status_reply, end / 4);
    };
    return is_near_end(options_.warn_after) || (timeout_ != Time{} && is_near_end(timeout_));
}

Done FailureDetector::check_time(uint32_t on) {
    const Time waited = now_ - since_;
    if (remote_ && !peer_table_.is_local(on) && waited >= asked_ + between_status_requests) {
        asked_ = waited;
        remote_->request_status(on, history_.current().call);
    }
    if (remote_ && is_time_to_ask() != has_asked_) {
        has_asked_ = !has_asked_;
        if (has_asked_) remote_->request_status_of_all(history_.current().call);
    }
    if (waited >= options_.warn_after && !has_warned_) warn(on);
    if (timeout_ == Time{} || waited < timeout_) return {};
    const uint32_t peer = culprit(on);
    const char *what = history_.begun(peer) < history_.current().call ? "come to" : "go on in";
    const Error error = Error::make(Code::timeout, "rank %u did not %s %s within %g s", shown(peer),
                                    what, shown_call(",").c_str(), in_seconds(timeout_));
    return shared_error_.set_once(explained(error, states()).at_rank(peer));
}

void FailureDetector::warn(uint32_t on) {
    has_warned_ = true;
    if (!options_.warn) return;
    // One rank warns for all ranks.
    const CallDescriptor &call = history_.current();
    std::atomic<uint64_t> &warned = peer_table_.first().shared_error().warned_call;
    uint64_t before = warned.load(std::memory_order_relaxed);
    if (before >= call.call || !warned.compare_exchange_strong(before, call.call)) return;
    if (remote_) remote_->broadcast_warning(call.call);
    const uint32_t peer = culprit(on);
    const char *what = history_.begun(peer) < call.call ? "has not come to" : "does not go on in";
    const Error warning = Error::make(Code::timeout, "rank %u (pid %" PRId64 ") %s %s for %g s",
                                      shown(peer), peer_table_.pids[peer], what,
                                      shown_call(",").c_str(), in_seconds(options_.warn_after));
    options_.warn(explained(warning, states()).text);
}

std::vector<RankState> FailureDetector::states() const {
    const int64_t now_ns = count_ns(now_);
    auto states = options_.owner ? options_.owner->states(now_ns)
                                 : published_states(peer_table_, history_, now_ns);
    for (uint32_t rank = 0; rank < peer_table_.size(); rank++) {
        RankState &state = states[shown(rank)];
        state.has_left |= liveness_.has_left(rank);
        if (liveness_.has_ended(rank)) state.process = RankState::Process::ended;
    }
    return states;
}

// Returns the rank that the peer waits for at the moment, if any; the peer itself if it waits for a
// slot.
std::optional<uint32_t> FailureDetector::awaited_by(uint32_t peer) const {
    const RankStatus &status = peer_table_.segments[peer].status();
    const uint32_t waits_on = status.waits_on.load(std::memory_order_acquire);
    const int64_t awake_ns = status.awake_ns.load(std::memory_order_relaxed);
    if (waits_on == 0 || waits_on > peer_table_.size() ||
        count_ns(now_) - awake_ns >= stale.count())
        return std::nullopt;
    return waits_on - 1;
}

// Returns the rank that keeps the others waiting: the lowest rank that has not begun the call, or
// else the end of the chain in which each rank waits for the next.
uint32_t FailureDetector::culprit(uint32_t on) const {
    for (uint32_t peer = 0; peer < peer_table_.size(); peer++)
        if (history_.begun(peer) < history_.current().call) return peer;
    uint32_t peer = on;
    for (uint32_t hops = 0; hops < peer_table_.size(); hops++) {
        const auto next = awaited_by(peer);
        if (!next) return peer;
        if (*next == peer) return slow_reader(on);
        peer = *next;
    }
    return on;
}

// Returns the lowest rank that may still read another rank's slot and does not wait itself.
uint32_t FailureDetector::slow_reader(uint32_t otherwise) const {
    const uint64_t call = history_.current().call;
    for (uint32_t peer = 0; peer < peer_table_.size(); peer++) {
        const uint64_t ended =
            peer_table_.segments[peer].status().ended.load(std::memory_order_relaxed);
        const bool has_read = history_.begun(peer) > call || ended == call;
        if (!has_read && !awaited_by(peer)) return peer;
    }
    return otherwise;
}

std::optional<uint32_t> FailureDetector::missing_witness(uint64_t call) const {
    const auto difference = history_.difference(call, ends());
    const uint32_t end = difference ? static_cast<uint32_t>(difference->rank) : peer_table_.size();
    for (uint32_t peer = 0; peer < end; peer++)
        if (!history_.find(peer, call) && !is_gone(peer)) return peer;
    return std::nullopt;
}

// Returns another rank's failure if there is one, since that rank may know more; else the
// difference between the calls, if it can be named in time.
std::optional<Error> FailureDetector::await_difference(uint64_t call) {
    const Time patience =
        timeout_ == Time{} ? options_.peer_timeout : std::min(timeout_, options_.peer_timeout);
    const auto deadline = Clock::now() + patience;
    for (;;) {
        // This rank's version of the call goes to all other hosts, and they answer with theirs.
        if (remote_) remote_->request_status_of_all(call);
        while (!shared_error_.is_set()) {
            if (remote_) remote_->progress();
            check_liveness();
            const auto missing = missing_witness(call);
            now_ = Clock::now();
            if (!missing || now_ >= deadline) break;
            show({*missing, WaitPhase::meeting});
            if (options_.idle) options_.idle();
            std::this_thread::sleep_for(between_looks_at_disagreement);
        }
        if (const auto failure = shared_error_.failure()) return failure;
        const bool can_go_back = call > history_.oldest_kept() && now_ < deadline;
        if (!can_go_back || !history_.differs_before(call))
            return history_.difference(call, ends());
        call--;
    }
}

Error FailureDetector::mismatch(uint64_t call) {
    now_ = Clock::now();
    if (since_ == Clock::time_point()) since_ = now_;
    if (const auto difference = await_difference(call)) return shared_error_.set_once(*difference);
    return shared_error_.set_once(Error::make(Code::internal_error,
                                              "a message came that call %" PRIu64
                                              " does not know, though all ranks agree about it",
                                              call));
}

} // namespace qccl
