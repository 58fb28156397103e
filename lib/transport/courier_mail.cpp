// Mail of other hosts, from its coming until this rank has used it up: in the box where it waits,
// or in the room that is meant for it.
#include "transport/courier.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace qccl {

namespace {

struct BatchedMessage {
    MessageTag tag;
    std::span<const std::byte> bytes;
};

// The first message of what is left of a batch, which it is taken off; none: no whole one is there.
std::optional<BatchedMessage> take_off(std::span<const std::byte> &batch) {
    BatchEntry entry;
    if (batch.size() < sizeof entry) return std::nullopt;
    std::memcpy(&entry, batch.data(), sizeof entry);
    const auto behind = batch.subspan(sizeof entry);
    if (entry.bytes > behind.size()) return std::nullopt;
    batch = behind.subspan(entry.bytes);
    return BatchedMessage{entry.tag, behind.first(entry.bytes)};
}

bool is_sound_batch(std::span<const std::byte> batch) {
    if (batch.empty() || batch.size() > most_batch_bytes) return false;
    while (take_off(batch)) {}
    return batch.empty();
}

} // namespace

bool Courier::has_mail_from(uint32_t peer) const {
    const std::lock_guard guard(mutex_);
    return std::any_of(boxes_[peer].begin(), boxes_[peer].end(), [&](const FarMail &mail) {
        return mail.is_asked && mail.letter.call.call == history_.current().call;
    });
}

Courier::Received Courier::receive(uint32_t peer, MessageTag tag, const Room &room) {
    const std::lock_guard guard(mutex_);
    Box &box = boxes_[peer];
    if (box.empty() && room.memory.size() >= Transport::long_message_bytes) progress_locked();
    const uint64_t call = history_.current().call;
    for (auto mail = box.begin(); mail != box.end(); ++mail) {
        const Letter &letter = mail->letter;
        if (letter.call.call != call) continue;
        if (letter.hash != history_.hash()) return {.arrival = Arrival::other_call, .call = call};
        if (letter.tag != tag) continue;
        const uint64_t bytes = mail->bytes;
        if (bytes > room.memory.size()) return {.arrival = Arrival::too_long, .bytes = bytes};
        mail->is_asked = true;
        if (!mail->is_here && !place(*mail, room)) {
            if (mail->is_fetching) progress_locked();
            return {};
        }
        use_up(*mail);
        box.erase(mail);
        boxed_--;
        return {.arrival = Arrival::here, .bytes = bytes};
    }
    want(peer, tag, room);
    return {};
}

// In the box as soon as nothing can go wrong with it any more.
void Courier::take_mail(const Letter &letter, const void *data, uint64_t bytes,
                        NetworkTicket *ticket) {
    Box come(1);
    FarMail &mail = come.front();
    mail.letter = letter;
    mail.bytes = bytes;
    mail.ticket = ticket;
    mail.data = static_cast<const std::byte *>(data);
    if (!place_where_wanted(mail) && !ticket) {
        mail.early.reserve(bytes); // refuses more than there can be, before it is counted through
        mail.early.assign(mail.data, mail.data + bytes);
        mail.data = mail.early.data();
    }
    boxes_[letter.from].splice(boxes_[letter.from].end(), come);
    boxed_++;
}

void Courier::take_batch(const Letter &letter, const void *data, uint64_t bytes,
                         NetworkTicket *ticket) {
    const std::span<const std::byte> batch(static_cast<const std::byte *>(data), data ? bytes : 0);
    Letter mail = letter;
    mail.kind = LetterKind::mail;
    if (is_sound_batch(batch))
        for (auto rest = batch; const auto message = take_off(rest);) {
            mail.tag = message->tag;
            take_mail(mail, message->bytes.data(), message->bytes.size(), nullptr);
        }
    else
        (void)verdict_.pass(Error::make(Code::damaged_data,
                                        "a batch of messages from rank %u is damaged", letter.from)
                                .at_rank(letter.from));
    if (ticket) network_.discard(ticket);
}

void Courier::want(uint32_t peer, MessageTag tag, const Room &room) {
    std::vector<Wanted> &wanted = pen_pals_[peer].wanted;
    const auto is_it = [&](const Wanted &each) { return each.tag == tag; };
    if (std::any_of(wanted.begin(), wanted.end(), is_it)) return;
    wanted.push_back({history_.current().call, history_.hash(), tag, room});
}

bool Courier::place_where_wanted(FarMail &mail) {
    const Letter &letter = mail.letter;
    std::vector<Wanted> &wanted = pen_pals_[letter.from].wanted;
    const auto it = std::find_if(wanted.begin(), wanted.end(), [&](const Wanted &each) {
        return each.tag == letter.tag && each.call == letter.call.call && each.hash == letter.hash;
    });
    if (it == wanted.end() || mail.bytes > it->room.memory.size()) return false;
    const Room room = it->room;
    wanted.erase(it);
    mail.is_asked = true;
    return place(mail, room);
}

// True: all of it lies in the room now.
bool Courier::place(FarMail &mail, const Room &room) {
    std::atomic<uint32_t> &readers = party_.mine().readers(room.slot).count;
    if (mail.is_fetching || readers.load(std::memory_order_acquire) != 0) return false;
    readers.store(1, std::memory_order_relaxed);
    mail.room = room;
    if (!mail.ticket || mail.data) {
        std::copy_n(mail.data, mail.bytes, room.memory.begin());
        if (mail.ticket) network_.discard(std::exchange(mail.ticket, nullptr));
        return mail.is_here = true;
    }
    mail.is_fetching = true;
    network_.fetch(std::exchange(mail.ticket, nullptr), room.memory.first(mail.bytes),
                   std::bit_cast<uint64_t>(&mail));
    return false;
}

void Courier::empty(const Room &room) {
    party_.mine().readers(room.slot).count.store(0, std::memory_order_release);
}

// Says so before the sender has to wait for it.
void Courier::use_up(const FarMail &mail) {
    const uint32_t from = mail.letter.from;
    PenPal &pal = pen_pals_[from];
    pal.took += mail.bytes;
    const bool waits_for_last = has_left(from) && boxes_[from].size() == 1;
    if (waits_for_last || pal.took - pal.told >= most_untaken_ / 2)
        post(from, letter(LetterKind::news));
}

// A call that was given up may leave mail behind, too.
std::optional<uint64_t> Courier::clear_boxes() {
    std::optional<uint64_t> other;
    if (boxed_ == 0) return other;
    for (Box &box : boxes_)
        boxed_ -= std::erase_if(box, [&](FarMail &mail) {
            const uint64_t call = mail.letter.call.call;
            if (call >= history_.current().call || mail.is_fetching) return false;
            const auto ours = history_.find(party_.rank, call);
            if (ours && ours->hash() != mail.letter.hash)
                other = std::min(other.value_or(call), call);
            if (mail.ticket) network_.discard(std::exchange(mail.ticket, nullptr));
            if (mail.is_here) empty(mail.room);
            use_up(mail);
            return true;
        });
    return other;
}

} // namespace qccl
