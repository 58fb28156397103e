// What a rank tells ranks of other hosts beside mail and lines: where it is, and how it goes.
#include "transport/courier.hpp"

#include <algorithm>
#include <thread>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

// A verdict goes to all while there are few, else round the ranks in steps of powers of two, from
// where it is told on.
constexpr uint32_t few = 16;

// Whoever has something else to do waits no longer for what is on its way.
constexpr auto longest_farewell = std::chrono::milliseconds(250);

} // namespace

template <class Condition>
void Courier::progress_until(const Condition &is_met, std::chrono::nanoseconds longest) {
    const auto deadline = Clock::now() + longest;
    while (!is_met() && Clock::now() < deadline)
        if (!progress()) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Courier::announce() {
    const std::lock_guard guard(mutex_);
    Letter news = letter(LetterKind::news);
    news.call = latest_call();
    post_to_all(news);
    progress_locked();
}

Letter Courier::question(uint64_t call) const {
    Letter question = letter(LetterKind::question);
    question.call = history_.find(party_.rank, call).value_or(latest_call());
    question.about = call;
    return question;
}

void Courier::ask_all(uint64_t call) {
    const std::lock_guard guard(mutex_);
    post_to_all(question(call));
    progress_locked();
}

void Courier::ask(uint32_t peer, uint64_t call) {
    const std::lock_guard guard(mutex_);
    post(peer, question(call));
}

void Courier::see_off() {
    const auto are_sent = [&] {
        const std::lock_guard guard(mutex_);
        return unsent_copies_.empty();
    };
    progress_until(are_sent, longest_farewell);
}

void Courier::spread(const Error &error) {
    {
        const std::lock_guard guard(mutex_);
        failure_ = error;
        const NetworkPart part{&failure_, sizeof failure_};
        for (const uint32_t peer : listeners())
            post(peer, letter(LetterKind::verdict), std::span(&part, 1));
    }
    progress_until([&] { return unsent_ == 0; }, longest_farewell);
}

std::vector<uint32_t> Courier::listeners() const {
    const uint32_t size = party_.size();
    std::vector<uint32_t> ranks;
    for (uint32_t step = 1; step<size; step = size> few ? 2 * step : step + 1) {
        ranks.push_back((party_.rank + step) % size);
        ranks.push_back((party_.rank + size - step) % size);
    }
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::erase_if(ranks, [&](uint32_t rank) { return party_.is_near(rank); });
    return ranks;
}

void Courier::warned(uint64_t call) {
    const std::lock_guard guard(mutex_);
    Letter warned = letter(LetterKind::warned);
    warned.call = history_.current();
    warned.about = call;
    post_to_all(warned);
    progress_locked();
}

void Courier::leave() {
    {
        const std::lock_guard guard(mutex_);
        flush_locked(); // of a call that was given up
        Letter left = letter(LetterKind::left);
        left.call = latest_call(); // in which nobody need miss this rank
        for (const uint32_t peer : party_.far_ranks)
            if (pen_pals_[peer].is_known && !pen_pals_[peer].is_lost) post(peer, left);
    }
    progress_until([&] { return is_missed_by_nobody(); }, std::chrono::seconds(1));
}

// Nobody who may still need this rank's mail is without it. The network would throw away what it
// has taken over and not delivered.
bool Courier::is_missed_by_nobody() {
    const std::lock_guard guard(mutex_);
    return unsent_ == 0 &&
           (verdict_.is_passed() ||
            std::all_of(party_.far_ranks.begin(), party_.far_ranks.end(), [&](uint32_t peer) {
                const PenPal &pal = pen_pals_[peer];
                return pal.is_lost || has_left(peer) || pal.taken == pal.mailed;
            }));
}

} // namespace qccl
