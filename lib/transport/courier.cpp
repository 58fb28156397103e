// Lines out and in, and notes of who is where. What the network tells during `progress`
// is noted at once and answered after it, so that nothing is posted from inside the network.
#include "transport/courier.hpp"

#include "base/contained.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl {

namespace {

using Clock = std::chrono::steady_clock;

// Calls between two announcements to ranks that need not hear from this one otherwise: often enough
// for nobody to wait for room to keep its calls.
constexpr uint64_t calls_between_news = calls_kept / 2;

// What is given back when a message has gone.
constexpr uint64_t line_token = uint64_t{1} << 63;

void raise(std::atomic<uint64_t> &value, uint64_t to) {
    if (value.load(std::memory_order_relaxed) < to) value.store(to, std::memory_order_release);
}

} // namespace

NetworkEvents Courier::events() {
    return {
        .context = this,
        .came =
            [](void *context, const void *head, size_t head_bytes, const void *data, size_t bytes,
               NetworkTicket *ticket) {
                auto &self = *static_cast<Courier *>(context);
                Letter letter;
                if (head_bytes == sizeof letter) std::memcpy(&letter, head, sizeof letter);
                const bool is_sound = head_bytes == sizeof letter && self.is_ours(letter);
                const Done taken = contained([&]() -> Done {
                    if (is_sound) self.came(letter, data, bytes, ticket);
                    return {};
                });
                if (!taken) (void)self.verdict_.pass(taken.error());
                if ((!taken || !is_sound) && ticket) self.network_.discard(ticket);
            },
        .sent = [](void *context, uint64_t token) { static_cast<Courier *>(context)->sent(token); },
        .fetched =
            [](void *context, uint64_t token, bool whole) {
                static_cast<Courier *>(context)->fetched(*std::bit_cast<FarMail *>(token), whole);
            },
        .lost =
            [](void *context, uint32_t peer, const char *) {
                static_cast<Courier *>(context)->pen_pals_[peer].is_lost = true;
            }};
}

bool Courier::progress() {
    const std::lock_guard guard(mutex_);
    return progress_locked();
}

void Courier::count_work(std::chrono::steady_clock::time_point since) {
    const std::chrono::nanoseconds took = Clock::now() - since;
    ns_at_work_.fetch_add(took.count(), std::memory_order_relaxed);
}

bool Courier::progress_locked() {
    flush_locked();
    const auto start = Clock::now();
    const bool has_moved = network_.progress();
    if (has_moved) count_work(start);
    if (!askers_.empty()) answer();
    return has_moved;
}

bool Courier::arm() {
    const std::lock_guard guard(mutex_);
    return network_.arm();
}

bool Courier::is_ours(const Letter &letter) const {
    return letter.session == session_ && letter.from < party_.size() &&
           !party_.is_near(letter.from);
}

Letter Courier::letter(LetterKind kind) const {
    const Presence &presence = party_.mine().presence();
    return {.session = session_,
            .kind = kind,
            .from = party_.rank,
            .ended = presence.ended.load(std::memory_order_relaxed),
            .waits_on = presence.waits_on.load(std::memory_order_relaxed),
            .ignores_failure = presence.ignores_failure.load(std::memory_order_relaxed)};
}

Letter Courier::letter_of_call(LetterKind kind) const {
    Letter of_call = letter(kind);
    of_call.call = history_.current();
    of_call.hash = history_.hash();
    return of_call;
}

void Courier::post(uint32_t peer, Letter letter, std::span<const NetworkPart> parts, uint64_t token,
                   bool is_welcome) {
    PenPal &pal = pen_pals_[peer];
    pal.is_known = true;
    letter.taken = pal.told = pal.took;
    unsent_++;
    const auto start = Clock::now();
    const auto posted =
        network_.post(peer, std::as_bytes(std::span(&letter, 1)), parts, is_welcome, token);
    count_work(start);
    if (posted == Network::Posted::refused) pal.is_lost = true;
    if (posted != Network::Posted::under_way) sent(token);
}

void Courier::post_to_all(const Letter &letter, std::span<const NetworkPart> parts,
                          uint64_t token) {
    for (const uint32_t peer : party_.far_ranks) post(peer, letter, parts, token);
}

void Courier::sent(uint64_t token) {
    unsent_--;
    if (token == 0) return;
    if ((token & line_token) != 0) {
        unsent_lines_[token & 1]--;
        return;
    }
    if ((token & copy_token) != 0) {
        UnsentCopy &copy = unsent_copies_.at(token);
        if (--copy.letters != 0) return;
        if (copy.is_mail) unsent_mail_--;
        unsent_copies_.erase(token);
        return;
    }
    sent_mail(token);
}

std::optional<uint64_t> Courier::begin() {
    const std::lock_guard guard(mutex_);
    const CallDescriptor &call = history_.current();
    const auto other = clear_boxes();
    for (const uint32_t peer : party_.far_ranks) pen_pals_[peer].wanted.clear();
    const bool is_time = call.call % calls_between_news == 0;
    if (!is_time && patient_.empty()) return other;
    Letter news = letter(LetterKind::news);
    news.call = call;
    if (is_time) post_to_all(news);
    std::erase_if(patient_, [&](uint32_t peer) {
        uint64_t &asks = pen_pals_[peer].asks;
        if (!is_time && asks > call.call) return false;
        if (!is_time && asks != 0) post(peer, news);
        asks = 0;
        return true;
    });
    return other;
}

void Courier::publish(uint64_t exchange, uint64_t bytes) {
    const std::lock_guard guard(mutex_);
    Letter line = letter_of_call(LetterKind::line);
    line.exchange = exchange;
    const NetworkPart part{party_.mine().line_data(exchange), bytes};
    unsent_lines_[exchange % 2] += party_.far_ranks.size();
    post_to_all(line, std::span(&part, 1), line_token | exchange % 2);
    progress_locked();
}

void Courier::came(const Letter &letter, const void *data, uint64_t bytes, NetworkTicket *ticket) {
    take_note(letter);
    switch (letter.kind) {
    case LetterKind::mail: return take_mail(letter, data, bytes, ticket);
    case LetterKind::batch: return take_batch(letter, data, bytes, ticket);
    case LetterKind::line: return take_line(letter, data, bytes, ticket);
    case LetterKind::question:
        pen_pals_[letter.from].asks = letter.about;
        askers_.push_back(letter.from);
        break;
    case LetterKind::verdict:
        if (Error told; bytes == sizeof told && data) {
            std::memcpy(&told, data, sizeof told);
            (void)verdict_.pass(as_heard(told, letter.from, party_.size()));
        }
        break;
    case LetterKind::warned: raise(party_.first().verdict().warned_call, letter.about); break;
    case LetterKind::left:
        party_.segments[letter.from].presence().has_left.store(1, std::memory_order_release);
        // It goes when it knows that all it has sent is taken.
        if (boxes_[letter.from].empty()) askers_.push_back(letter.from);
        break;
    case LetterKind::notice: take_notice(letter, data, bytes); break;
    case LetterKind::news: break;
    }
    if (ticket) network_.discard(ticket);
}

void Courier::take_note(const Letter &letter) {
    if (letter.call.call != 0) history_.record(letter.from, letter.call);
    Presence &note = party_.segments[letter.from].presence();
    PenPal &pal = pen_pals_[letter.from];
    pal.taken = std::max(pal.taken, std::min(letter.taken, pal.mailed));
    note.waits_on.store(letter.waits_on, std::memory_order_relaxed);
    note.ignores_failure.store(letter.ignores_failure, std::memory_order_relaxed);
    note.awake_ns.store(std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(),
                        std::memory_order_relaxed);
    raise(note.ended, letter.ended);
    raise(note.begun, letter.call.call);
}

void Courier::take_line(const Letter &letter, const void *data, uint64_t bytes,
                        NetworkTicket *ticket) {
    std::byte *const line = party_.segments[letter.from].line_data(letter.exchange);
    if (bytes > party_.line_bytes) {
        (void)verdict_.pass(
            Error::make(Code::damaged_data, "a line from rank %u is too long", letter.from)
                .at_rank(letter.from));
        if (ticket) network_.discard(ticket);
        return;
    }
    if (!ticket || data) {
        if (bytes != 0) std::memcpy(line, data, bytes);
        if (ticket) network_.discard(ticket);
        return show_line(letter, bytes);
    }
    FarMail &mail = lines_.emplace_back();
    mail.letter = letter;
    mail.bytes = bytes;
    network_.fetch(ticket, {line, bytes}, std::bit_cast<uint64_t>(&mail));
}

void Courier::show_line(const Letter &letter, uint64_t bytes) {
    LineHead &head = party_.segments[letter.from].line(letter.exchange);
    head.call = letter.call.call;
    head.hash = letter.hash;
    head.bytes = bytes;
    head.stamp.store(letter.exchange, std::memory_order_release);
}

void Courier::fetched(FarMail &mail, bool whole) {
    const uint32_t from = mail.letter.from;
    const bool is_line = mail.letter.kind == LetterKind::line;
    mail.is_fetching = false;
    mail.is_here = whole;
    if (!whole) pen_pals_[from].is_lost = true;
    if (is_line && whole) show_line(mail.letter, mail.bytes);
    if (!is_line) {
        const uint64_t begun = party_.mine().presence().begun.load(std::memory_order_relaxed);
        if (whole && mail.letter.call.call >= begun) return;
        // Nobody will ask for it, and somebody may wait for its room.
        empty(mail.room);
        pen_pals_[from].took += mail.bytes;
        askers_.push_back(from);
    }
    const auto is_it = [&](const FarMail &each) { return &each == &mail; };
    if (is_line)
        std::erase_if(lines_, is_it);
    else
        boxed_ -= std::erase_if(boxes_[from], is_it);
}

CallDescriptor Courier::latest_call() const {
    const uint64_t latest = party_.mine().presence().begun.load(std::memory_order_acquire);
    return history_.find(party_.rank, latest).value_or(CallDescriptor());
}

// Questions that came during the progress.
void Courier::answer() {
    for (const uint32_t peer : std::exchange(askers_, {})) {
        Letter news = letter(LetterKind::news);
        uint64_t &asks = pen_pals_[peer].asks;
        if (const auto call = history_.find(party_.rank, asks)) {
            news.call = *call;
            asks = 0;
        } else {
            news.call = latest_call();
            patient_.insert(peer);
        }
        post(peer, news);
    }
}

} // namespace qccl
