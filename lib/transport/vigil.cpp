// The steps of a wait, and the sentences in which it ends badly.
#include "transport/vigil.hpp"

#include "base/deadline.hpp"
#include "transport/survey.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <sched.h>
#include <thread>

namespace qccl {

namespace {

using namespace std::chrono_literals;

// A look at the clock costs as much as several at memory.
constexpr uint32_t looks_per_clock = 16;
// Yielding finds a message within a microsecond or two where others need the core, a sleeper needs
// tens; but it burns the core where nobody does.
constexpr Vigil::Time yielding = 1ms;
// If a yield takes as long as this, somebody had a turn on this core and soon gave it back: most
// likely a rank that we wait for, whatever core it might have had. Then the next waits do not spin.
// One that keeps the core for longer only computes, and is better not asked.
constexpr Vigil::Time shortest_turn = 1us;
constexpr Vigil::Time longest_turn = 100us;
// Linux does not let another thread run at each yield: not while its scheduler finds this thread
// behind the others, nor between autogroups, which it makes of sessions. So a rank takes the core
// to be its own only after so many vain yields.
constexpr uint32_t yields_alone = 64;
constexpr Vigil::Time shortest_nap = 1ms;
constexpr Vigil::Time longest_nap = 50ms;
// Between two looks at a device, which wakes nobody.
constexpr Vigil::Time brief_nap = 50us;
// Who waits looks around after each nap; who has not for so long has been stopped.
constexpr Vigil::Time stale = 1s;
// Where a wait for another host is long, the question shows whether anybody is there to get it.
constexpr Vigil::Time between_questions = 1s;
// Of a wait, before its end: for answers of other hosts.
constexpr Vigil::Time longest_answer = 1s;
// One host after the other would warn, if it did not hear by then that another has.
constexpr Vigil::Time between_hosts_warnings = 500ms;
constexpr Vigil::Time between_looks_at_disagreement = 200us;

void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

int64_t count_ns(Vigil::Clock::time_point time) {
    return Vigil::Time(time.time_since_epoch()).count();
}

} // namespace

Vigil::Vigil(const Party &party, const CallHistory &history, Verdict &verdict, Recorder &recorder,
             Lifelines lifelines, Courier *courier, Options options)
    : party_(party), history_(history), verdict_(verdict), recorder_(recorder),
      lifelines_(std::move(lifelines)), courier_(courier), options_(std::move(options)),
      sleeper_(party.mine().bell(), party.fences), vain_yields_(yields_alone) {
    if (!courier_) return;
    // Ranks of one host share what one of them has said.
    options_.warn_after += std::min(party.near_ranks.front(), 10U) * between_hosts_warnings;
}

bool Vigil::shares_core() const {
    return !options_.spins_beside_others && vain_yields_ < yields_alone;
}

bool Vigil::linger() {
    const Time spin = shares_core() ? Time{} : options_.spin;
    const uint32_t look = looks_++;
    if (spin != Time{}) {
        relax();
        // A wait that is over within a few looks asks no clock at all.
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
        vain_yields_ = yields_alone;
    else
        vain_yields_ = away > shortest_turn ? 0 : std::min(vain_yields_ + 1, yields_alone);
    return true;
}

Done Vigil::keep(const Wait &what) {
    if (!sleeper_.is_lying()) {
        sleeper_.lie_down();
        nap_ = shortest_nap;
        return {};
    }
    const auto suspect = suspect_;
    show(what);
    QCCL_TRY(examine(what.on));
    // What a rank gave before it was lost may have come since the last look.
    if (suspect_ != suspect) return {};
    sleep(what.is_brief ? brief_nap : nap_);
    nap_ = std::min(2 * nap_, longest_nap);
    return {};
}

void Vigil::sleep(Time longest) {
    if (!courier_) return sleeper_.sleep(longest);
    if (courier_->arm()) sleeper_.sleep(longest, party_.bell, courier_->descriptor());
}

void Vigil::end() {
    looks_ = 0;
    since_ = Clock::time_point();
    if (!sleeper_.is_lying()) return;
    sleeper_.get_up();
    party_.mine().presence().waits_on.store(0, std::memory_order_relaxed);
    recorder_.came();
    suspect_.reset();
    has_warned_ = false;
    has_asked_ = false;
    asked_ = {};
}

void Vigil::show(const Wait &what) const {
    Presence &presence = party_.mine().presence();
    presence.awake_ns.store(count_ns(now_), std::memory_order_relaxed);
    presence.waits_on.store(what.on + 1, std::memory_order_release);
    recorder_.waits(what, count_ns(since_), count_ns(now_));
}

Done Vigil::examine(uint32_t on) {
    if (const auto failure = verdict_.failure()) return *failure;
    if (options_.idle) options_.idle();
    QCCL_TRY(check_peers(on));
    for (uint32_t peer = 0; peer < party_.size(); peer++)
        if (const auto call = history_.disagreement(peer)) return mismatch(*call);
    return check_time(on);
}

bool Vigil::has_left(uint32_t peer) const {
    return party_.segments[peer].presence().has_left.load(std::memory_order_acquire) ||
           lifelines_.has_left(peer);
}

bool Vigil::is_gone(uint32_t peer) const {
    return lifelines_.has_ended(peer) || has_left(peer) || (courier_ && courier_->is_lost(peer));
}

void Vigil::listen() {
    lifelines_.look();
    if (const auto &told = lifelines_.told())
        (void)verdict_.pass(as_heard(told->error, told->from, party_.size()));
}

Done Vigil::check_peers(uint32_t on) {
    listen();
    if (lifelines_.told()) return *verdict_.failure();
    for (uint32_t peer = 0; peer < party_.size(); peer++) {
        if (peer == party_.rank || !is_gone(peer)) continue;
        // Who has left in good order is missed only by those who still wait for it. So is whom
        // messages no longer reach, for that may be its way of leaving.
        const bool in_order = has_left(peer) || !lifelines_.has_ended(peer);
        if (in_order && peer != on && history_.begun(peer) >= history_.current().call) continue;
        if (in_order && courier_ && courier_->has_mail_from(peer)) continue;
        if (suspect_ == peer) return verdict_.pass(lost(peer));
        suspect_ = peer;
        return {};
    }
    return {};
}

Error Vigil::lose(uint32_t peer) {
    // Messages may fail before those who know why have said so.
    const auto patience = std::min(options_.peer_timeout, longest_answer);
    for (const auto deadline = Clock::now() + patience; Clock::now() < deadline;) {
        if (const auto failure = verdict_.failure()) return *failure;
        courier_->progress();
        listen();
        if (has_left(peer) || lifelines_.has_ended(peer)) break;
        std::this_thread::sleep_for(between_looks_at_disagreement);
    }
    return verdict_.pass(lost(peer));
}

Error Vigil::lost(uint32_t peer) const {
    const CallDescriptor &call = history_.current();
    if (has_left(peer))
        return Error::make(Code::peer_lost,
                           "rank %u has left the communicator; %s, call %" PRIu64 ", waits for it",
                           peer, name(call.collective), call.call)
            .at_rank(peer);
    const char *when = history_.begun(peer) < call.call ? "before" : "during";
    // On another host, nobody can tell a process that has ended from a link that has.
    if (!party_.is_near(peer))
        return Error::make(Code::peer_lost,
                           "rank %u (pid %" PRId64 " of another host) died or cannot be reached "
                           "%s %s, call %" PRIu64,
                           peer, party_.pids[peer], when, name(call.collective), call.call)
            .at_rank(peer);
    return Error::make(Code::peer_lost, "rank %u (pid %" PRId64 ") died %s %s, call %" PRIu64, peer,
                       party_.pids[peer], when, name(call.collective), call.call)
        .at_rank(peer);
}

bool Vigil::is_time_to_ask() const {
    const Time waited = now_ - since_;
    const auto is_near_end = [&](Time end) {
        return waited < end && waited >= end - std::min(longest_answer, end / 4);
    };
    return is_near_end(options_.warn_after) || (timeout_ != Time{} && is_near_end(timeout_));
}

Done Vigil::check_time(uint32_t on) {
    const Time waited = now_ - since_;
    if (courier_ && !party_.is_near(on) && waited >= asked_ + between_questions) {
        asked_ = waited;
        courier_->ask(on, history_.current().call);
    }
    if (courier_ && is_time_to_ask() != has_asked_) {
        has_asked_ = !has_asked_;
        if (has_asked_) courier_->ask_all(history_.current().call);
    }
    if (waited >= options_.warn_after && !has_warned_) warn(on);
    if (timeout_ == Time{} || waited < timeout_) return {};
    const uint32_t peer = culprit(on);
    const CallDescriptor &call = history_.current();
    const char *what = history_.begun(peer) < call.call ? "come to" : "go on in";
    const Error error =
        Error::make(Code::timeout, "rank %u did not %s %s, call %" PRIu64 ", within %g s", peer,
                    what, name(call.collective), call.call, in_seconds(timeout_));
    return verdict_.pass(explained(error).at_rank(peer));
}

void Vigil::warn(uint32_t on) {
    has_warned_ = true;
    if (!options_.warn) return;
    // One rank warns for all.
    const CallDescriptor &call = history_.current();
    std::atomic<uint64_t> &warned = party_.first().verdict().warned_call;
    uint64_t before = warned.load(std::memory_order_relaxed);
    if (before >= call.call || !warned.compare_exchange_strong(before, call.call)) return;
    if (courier_) courier_->warned(call.call);
    const uint32_t peer = culprit(on);
    const char *what = history_.begun(peer) < call.call ? "has not come to" : "does not go on in";
    const Error warning = Error::make(
        Code::timeout, "rank %u (pid %" PRId64 ") %s %s, call %" PRIu64 ", for %g s", peer,
        party_.pids[peer], what, name(call.collective), call.call, in_seconds(options_.warn_after));
    options_.warn(explained(warning).text);
}

Error Vigil::explained(const Error &error) const {
    const auto states = survey(party_, history_, lifelines_, count_ns(now_));
    Error whole = error;
    const size_t said = std::strlen(error.text), room = sizeof error.text - said - sizeof ": ";
    std::snprintf(whole.text + said, sizeof whole.text - said, ": %s",
                  one_sentence(summarize(states), room).c_str());
    return whole;
}

// Whom the peer waits for at the moment, if for anybody; itself where it waits for a slot.
std::optional<uint32_t> Vigil::awaited_by(uint32_t peer) const {
    const Presence &presence = party_.segments[peer].presence();
    const uint32_t waits_on = presence.waits_on.load(std::memory_order_acquire);
    const int64_t awake_ns = presence.awake_ns.load(std::memory_order_relaxed);
    if (waits_on == 0 || waits_on > party_.size() || count_ns(now_) - awake_ns >= stale.count())
        return std::nullopt;
    return waits_on - 1;
}

// The rank that keeps the others waiting: the lowest that has not come to the call, or else the end
// of the chain of ranks of which each waits for the next.
uint32_t Vigil::culprit(uint32_t on) const {
    for (uint32_t peer = 0; peer < party_.size(); peer++)
        if (history_.begun(peer) < history_.current().call) return peer;
    uint32_t peer = on;
    for (uint32_t hops = 0; hops < party_.size(); hops++) {
        const auto next = awaited_by(peer);
        if (!next) return peer;
        if (*next == peer) return slow_reader(on);
        peer = *next;
    }
    return on;
}

// Of those who may still read somebody's slot, the lowest that does not wait itself.
uint32_t Vigil::slow_reader(uint32_t otherwise) const {
    const uint64_t call = history_.current().call;
    for (uint32_t peer = 0; peer < party_.size(); peer++) {
        const uint64_t ended =
            party_.segments[peer].presence().ended.load(std::memory_order_relaxed);
        const bool has_read = history_.begun(peer) > call || ended == call;
        if (!has_read && !awaited_by(peer)) return peer;
    }
    return otherwise;
}

std::optional<uint32_t> Vigil::missing_witness(uint64_t call) const {
    const auto difference = history_.difference(call);
    const uint32_t end = difference ? static_cast<uint32_t>(difference->rank) : party_.size();
    for (uint32_t peer = 0; peer < end; peer++)
        if (!history_.find(peer, call) && !is_gone(peer)) return peer;
    return std::nullopt;
}

// Failures of other ranks come first; they may know more.
std::optional<Error> Vigil::await_difference(uint64_t call) {
    const Time patience =
        timeout_ == Time{} ? options_.peer_timeout : std::min(timeout_, options_.peer_timeout);
    const auto deadline = Clock::now() + patience;
    for (;;) {
        // This rank's version goes to all other hosts, and they answer with theirs.
        if (courier_) courier_->ask_all(call);
        while (!verdict_.is_passed()) {
            if (courier_) courier_->progress();
            listen();
            const auto missing = missing_witness(call);
            now_ = Clock::now();
            if (!missing || now_ >= deadline) break;
            show({*missing, WaitPhase::meeting});
            if (options_.idle) options_.idle();
            std::this_thread::sleep_for(between_looks_at_disagreement);
        }
        if (const auto failure = verdict_.failure()) return failure;
        const bool can_go_back = call > history_.oldest_kept() && now_ < deadline;
        if (!can_go_back || !history_.differs_before(call)) return history_.difference(call);
        call--;
    }
}

Error Vigil::mismatch(uint64_t call) {
    now_ = Clock::now();
    if (since_ == Clock::time_point()) since_ = now_;
    if (const auto difference = await_difference(call)) return verdict_.pass(*difference);
    return verdict_.pass(Error::make(Code::internal_error,
                                     "a message came that call %" PRIu64
                                     " does not know, though all ranks agree about it",
                                     call));
}

} // namespace qccl
