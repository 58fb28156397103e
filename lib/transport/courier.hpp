// A rank's correspondence with the ranks of other hosts: hands their mail and lines to this rank,
// keeps its notes of where they are, and tells them. Any thread; knows no schedules.
#pragma once

#include "transport/call_history.hpp"
#include "transport/letter.hpp"
#include "transport/network.hpp"
#include "transport/verdict.hpp"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <set>

namespace qccl {

class Courier {
public:
    Courier(const Party &party, CallHistory &history, Verdict &verdict)
        : party_(party), history_(history), verdict_(verdict),
          most_untaken_(most_untaken(party.far_ranks.size())), boxes_(party.size()),
          pen_pals_(party.size()) {}
    Courier(const Courier &) = delete;

    // What ranks have sent and others have not used lies in the receivers' heaps.
    static constexpr uint64_t most_untaken(uint64_t far_ranks) {
        constexpr uint64_t from_all = uint64_t{64} << 20;
        return std::clamp(from_all / std::max<uint64_t>(1, far_ranks), uint64_t{256} << 10,
                          uint64_t{4} << 20);
    }

    NetworkEvents events();
    // An end that was opened with these events. `session` is equal on all ranks and a secret of
    // theirs.
    void use(Network network, uint64_t session) {
        network_ = std::move(network);
        session_ = session;
    }
    Network &network() { return network_; }

    // Deals with what has come and gone. False: nothing has.
    bool progress();
    // What the caller's memory is read for. News to those who are in no call may take for ever.
    bool has_unsent_mail() const { return unsent_mail_ != 0; }
    bool is_lost(uint32_t peer) const {
        const std::lock_guard guard(mutex_);
        return pen_pals_[peer].is_lost;
    }
    // Of the current call, which this rank has asked for and has not received yet. Mail that it has
    // not asked for says nothing about what it waits for.
    bool has_mail_from(uint32_t peer) const;
    // To sleep until something comes. False: something has.
    bool arm();
    int descriptor() const { return network_.descriptor(); }
    // That sending and receiving has taken, by whatever thread; looking in vain is none of it.
    std::chrono::nanoseconds time_at_work() const {
        return std::chrono::nanoseconds(ns_at_work_.load(std::memory_order_relaxed));
    }

    // A call has begun. An earlier one of which mail has come that this rank, which meant another
    // call by it, has not asked for.
    std::optional<uint64_t> begin();
    // False: the peer is lost.
    bool send(uint32_t peer, MessageTag tag, const Wire &wire, Transport::Sends when);
    // Messages that wait for a next one go.
    void flush();
    // Of this rank's line, to all.
    void publish(uint64_t exchange, uint64_t bytes);
    // Nobody reads what the line held before.
    bool is_line_sent(uint64_t exchange) const { return unsent_lines_[exchange % 2] == 0; }

    enum class Arrival : uint8_t { nothing, here, other_call, too_long };
    // Of the peer's message with this tag in the current call, in `room` once it is here. `call` is
    // the other's.
    struct Received {
        Arrival arrival = Arrival::nothing;
        uint64_t bytes = 0;
        uint64_t call = 0;
    };
    Received receive(uint32_t peer, MessageTag tag, const Room &room);

    // Tells every far rank where this rank is.
    void announce();
    // Asks every far rank, or one, for the descriptor of a call; a rank that has not begun it
    // answers again when it does. They learn this rank's descriptor of that call, if it has begun.
    void ask_all(uint64_t call);
    void ask(uint32_t peer, uint64_t call);
    // Tells the failure on.
    void spread(const Error &error);
    void warned(uint64_t call);
    // Of this rank.
    void post_notice(uint32_t number, uint64_t version, std::span<const std::byte> bytes,
                     std::span<const uint32_t> far_ranks);
    // Waits a moment for this rank's notices to be under way: a rank that then has no more to do
    // with the network may keep others waiting for them.
    void see_off();
    void leave();

private:
    struct FarMail {
        Letter letter;
        uint64_t bytes = 0;
        std::vector<std::byte> early;    // that came by themselves,
        const std::byte *data = nullptr; // or lie where the ticket keeps them
        NetworkTicket *ticket = nullptr;
        bool is_asked = false, is_fetching = false, is_here = false;
        Room room;
    };
    using Box = std::list<FarMail>;
    // Where a message is to lie that has been asked for before it came.
    struct Wanted {
        uint64_t call = 0, hash = 0;
        MessageTag tag;
        Room room;
    };
    struct PenPal {
        uint64_t asks = 0; // the call that it wants to hear of when this rank begins it
        // Bytes of mail: to it and used up there, as far as it has said; from it and used up here,
        // and what it has been told of that.
        uint64_t mailed = 0, taken = 0, took = 0, told = 0;
        std::vector<Wanted> wanted; // from it, in the current call
        bool is_known = false;      // has been written to
        bool is_lost = false;
    };

    void came(const Letter &letter, const void *data, uint64_t bytes, NetworkTicket *ticket);
    void sent(uint64_t token);
    void sent_mail(uint64_t token);
    void fetched(FarMail &mail, bool whole);
    void take_note(const Letter &letter);
    void take_mail(const Letter &letter, const void *data, uint64_t bytes, NetworkTicket *ticket);
    void take_batch(const Letter &letter, const void *data, uint64_t bytes, NetworkTicket *ticket);
    void take_line(const Letter &letter, const void *data, uint64_t bytes, NetworkTicket *ticket);
    void show_line(const Letter &letter, uint64_t bytes);
    void take_notice(const Letter &letter, const void *data, uint64_t bytes);
    void answer();
    std::optional<uint64_t> clear_boxes();

    bool is_ours(const Letter &letter) const;
    // From whatever thread this is: what has been published, not what is at hand.
    CallDescriptor latest_call() const;
    Letter question(uint64_t call) const;
    bool is_missed_by_nobody();
    // Or no longer than that.
    template <class Condition>
    void progress_until(const Condition &is_met, std::chrono::nanoseconds longest);
    bool has_left(uint32_t peer) const {
        return party_.segments[peer].presence().has_left.load(std::memory_order_relaxed) != 0;
    }
    Letter letter(LetterKind kind) const;
    // Whom this rank tells of a failure.
    std::vector<uint32_t> listeners() const;
    void post(uint32_t peer, Letter letter, std::span<const NetworkPart> parts = {},
              uint64_t token = 0, bool is_welcome = true);
    void post_to_all(const Letter &letter, std::span<const NetworkPart> parts = {},
                     uint64_t token = 0);
    void count_work(std::chrono::steady_clock::time_point since);
    bool progress_locked();
    Letter letter_of_call(LetterKind kind) const;
    void post_mail(uint32_t peer, MessageTag tag, const Wire &wire);
    void add_to_batch(uint32_t peer, MessageTag tag, const Wire &wire);
    void flush_locked();
    // A large message that is not stays at its sender until the receiver fetches it, which costs a
    // way there and back.
    bool is_welcome(const PenPal &pal) const { return pal.mailed - pal.taken <= most_untaken_; }
    bool place(FarMail &mail, const Room &room);
    void empty(const Room &room);
    bool place_where_wanted(FarMail &mail);
    void want(uint32_t peer, MessageTag tag, const Room &room);
    void use_up(const FarMail &mail);

    const Party &party_;
    CallHistory &history_;
    Verdict &verdict_;
    const uint64_t most_untaken_; // bytes of mail that a rank may send a rank without being asked

    mutable std::mutex mutex_;
    std::vector<Box> boxes_;       // by rank: mail that nobody has taken
    size_t boxed_ = 0;             // in all boxes
    Box lines_;                    // that are being fetched
    std::vector<PenPal> pen_pals_; // by rank
    std::vector<uint32_t> askers_; // whose questions wait for an answer
    std::set<uint32_t> patient_;   // who has been answered, and still wants to hear of a call
    Error failure_;                // as it is spread
    uint64_t session_ = 0;
    std::atomic<int64_t> ns_at_work_{0};
    std::atomic<uint64_t> unsent_{0};
    std::atomic<uint64_t> unsent_mail_{0};
    std::array<std::atomic<uint64_t>, 2> unsent_lines_{};
    // What the caller need not keep still while it goes: notices, and batches.
    static constexpr uint64_t copy_token = uint64_t{1} << 62;
    struct UnsentCopy {
        std::vector<std::byte> bytes;
        size_t letters = 0; // that it goes with
        bool is_mail = false;
    };
    std::map<uint64_t, UnsentCopy> unsent_copies_; // by token
    uint64_t copies_ = 0;
    // Small messages of one call to one peer, not yet posted. Who posts them may be the attendant,
    // which must not look at the current call. Empty: no message is held.
    struct Batch {
        uint32_t peer = 0;
        CallDescriptor call{};
        uint64_t hash = 0;
        std::vector<std::byte> bytes;
    };
    Batch batch_;
    Network network_; // last: closed before what it tells of
};

} // namespace qccl
