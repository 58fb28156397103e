// Hostile letters to a rank: strangers', who do not know the ranks' session, and those of a far
// rank that does, but is another release, or broken. Strangers change nothing. Whatever the far
// rank says, nothing is written past a room or a line, no waiting bytes are used twice or
// forgotten, no letter takes more memory than it has, and the words for what the ranks disagree in
// can be found.
#include "../memory_network.hpp"

#include "transport/courier.hpp"
#include "transport/notice.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint64_t session = 0x5e55;
constexpr uint32_t ranks = 3; // this one is rank 0, and the others are far
constexpr SegmentShape shape{
    .ranks = ranks, .slots = 4, .line_bytes = 64, .outbox_bytes = 4096, .inbox_bytes = 4096};
constexpr SegmentShape shape_of_notes{.ranks = 0, .line_bytes = shape.line_bytes};
constexpr size_t room_bytes = 48;

void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

// Zeros after the end.
class Input {
public:
    explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
    bool is_over() const { return bytes_.empty(); }
    template <class T = uint8_t> T take() {
        T value{};
        take_into(&value, sizeof value);
        return value;
    }
    std::vector<std::byte> take_bytes(size_t count) {
        std::vector<std::byte> taken(count);
        take_into(taken.data(), count);
        return taken;
    }

private:
    void take_into(void *to, size_t most) {
        const size_t bytes = std::min(most, bytes_.size());
        if (bytes != 0) std::memcpy(to, bytes_.data(), bytes);
        bytes_ = bytes_.subspan(bytes);
    }
    std::span<const uint8_t> bytes_;
};

// Bytes that wait at their sender. The network knows all that do, and frees those that nobody has
// asked for when it is closed.
struct Waiting : NetworkTicket {
    struct Network {
        struct Fetch {
            void *to;
            size_t bytes;
            uint64_t token;
        };
        std::vector<std::unique_ptr<Waiting>> tickets;
        std::deque<Fetch> fetches;
    };
    Network *network;
    uint64_t call; // that it is mail of

    static void use_up(NetworkTicket *ticket) {
        auto &tickets = static_cast<Waiting *>(ticket)->network->tickets;
        const auto it = std::find_if(tickets.begin(), tickets.end(),
                                     [&](const auto &each) { return each.get() == ticket; });
        require(it != tickets.end(), "bytes that are used twice");
        tickets.erase(it);
    }
};

const NetworkModule &module() {
    static const NetworkModule made = [] {
        NetworkModule module = memory_network::module;
        module.fetch = [](NetworkEnd *, NetworkTicket *ticket, void *to, size_t bytes,
                          uint64_t token) {
            require(bytes == ticket->bytes, "bytes that are fetched in part");
            static_cast<Waiting *>(ticket)->network->fetches.push_back({to, bytes, token});
            Waiting::use_up(ticket);
        };
        module.discard = [](NetworkEnd *, NetworkTicket *ticket) { Waiting::use_up(ticket); };
        return module;
    }();
    return made;
}

class Memory {
public:
    explicit Memory(const SegmentShape &of)
        : bytes_(*of.segment_bytes()), base_(std::aligned_alloc(4096, bytes_), std::free) {
        std::memset(base_.get(), 0, bytes_);
        segment(of).format();
    }
    Segment segment(const SegmentShape &of) const {
        return {static_cast<std::byte *>(base_.get()), of};
    }

private:
    size_t bytes_;
    std::unique_ptr<void, void (*)(void *)> base_;
};

Party make_party(const Memory (&memory)[ranks]) {
    Party party(0, Fences::both, {1, 2, 3});
    party.near_ranks = {0};
    party.far_ranks = {1, 2};
    party.line_bytes = shape.line_bytes;
    for (uint32_t rank = 0; rank < ranks; rank++)
        party.segments.push_back(memory[rank].segment(rank == 0 ? shape : shape_of_notes));
    return party;
}

class World {
public:
    World() {
        auto network = Network::open(module(), {.peers = ranks}, events_);
        for (const uint32_t peer : party_.far_ranks) {
            auto other = Network::open(memory_network::module, {.peers = ranks}, events_);
            others_.push_back(std::move(*other));
            network->introduce(peer, others_.back().address());
        }
        courier_.use(std::move(*network), session);
        begin();
    }

    void run(Input &input) {
        while (!input.is_over()) {
            switch (input.take() % 8) {
            case 0: tell_anything(input); break;
            case 1: end_and_begin(); break;
            case 2: receive(input.take() % shape.slots); break;
            case 3: finish_fetch(input.take() % 2 == 0); break;
            case 4: courier_.progress(); break;
            default: tell(input); break;
            }
            look_around();
        }
        end_and_begin();
    }

private:
    void begin() {
        call_.call++;
        history_.begin(call_, call_.numbers());
        history_.publish();
        (void)courier_.begin();
        for (const auto &ticket : waiting_.tickets)
            require(ticket->call >= call_.call, "bytes of an earlier call that wait for ever");
    }

    // What a letter may change.
    struct State {
        bool is_failed;
        std::array<uint64_t, size_t{ranks} * 7> notes;
        bool operator==(const State &) const = default;
    };
    State state() const {
        State now{verdict_.is_passed(), {}};
        auto next = now.notes.begin();
        for (const Segment &segment : party_.segments) {
            const Presence &presence = segment.presence();
            for (const uint64_t note :
                 {presence.begun.load(), presence.ended.load(), uint64_t{presence.has_left.load()},
                  uint64_t{presence.waits_on.load()}, segment.line(0).stamp.load(),
                  segment.line(1).stamp.load(), version_of_notice(segment, 0)})
                *next++ = note;
        }
        return now;
    }

    void came(std::span<const std::byte> head, Input &input) {
        Letter letter;
        if (head.size() == sizeof letter) std::memcpy(&letter, head.data(), sizeof letter);
        const bool is_ours = head.size() == sizeof letter && letter.session == session &&
                             letter.from != 0 && letter.from < ranks;
        const State before = state();
        const auto form = input.take();
        if (form % 4 == 3) {
            waiting_.tickets.push_back(std::make_unique<Waiting>());
            Waiting &ticket = *waiting_.tickets.back();
            ticket.network = &waiting_;
            ticket.call = letter.call.call;
            ticket.bytes = form % 8 == 3 ? input.take() : input.take<uint64_t>();
            const size_t others = waiting_.tickets.size() - 1;
            events_.came(events_.context, head.data(), head.size(), nullptr, ticket.bytes, &ticket);
            require(waiting_.tickets.size() == others ||
                        (is_ours && letter.kind == LetterKind::mail),
                    "bytes that wait for nobody");
        } else {
            const auto data = form % 4 == 2 && letter.kind == LetterKind::batch
                                  ? take_batch(input)
                                  : input.take_bytes(form % 4 == 1 ? sizeof(Error) : input.take());
            events_.came(events_.context, head.data(), head.size(), data.data(), data.size(),
                         nullptr);
        }
        require(is_ours || state() == before, "a stranger who changes something");
    }

    // Whole chunks, or almost.
    static std::vector<std::byte> take_batch(Input &input) {
        std::vector<std::byte> batch;
        const auto append = [&](const auto &bytes) {
            batch.insert(batch.end(), bytes.begin(), bytes.end());
        };
        for (unsigned left = input.take() % 4; left != 0; left--) {
            BatchEntry entry{.bytes = input.take() % room_bytes};
            entry.tag.ordinal = input.take() % 2;
            append(std::as_bytes(std::span(&entry, 1)));
            append(input.take_bytes(entry.bytes));
        }
        if (input.take() % 4 == 0) append(input.take_bytes(input.take()));
        return batch;
    }

    // With the right session, too.
    void tell_anything(Input &input) {
        const size_t bytes = input.take() % 4 != 0 ? sizeof(Letter) : input.take();
        const bool is_known = input.take() % 2 == 0;
        auto head = input.take_bytes(bytes);
        if (is_known && bytes >= sizeof session)
            std::memcpy(head.data() + offsetof(Letter, session), &session, sizeof session);
        came(head, input);
    }

    // What a rank may say, or almost.
    void tell(Input &input) {
        Letter letter{.session = session};
        letter.kind = static_cast<LetterKind>(input.take() % 10);
        letter.from = 1 + input.take() % ranks;
        letter.ended = input.take();
        letter.waits_on = input.take();
        letter.call = call_;
        letter.hash = history_.hash();
        letter.about = call_.call + input.take() % 4;
        letter.tag.ordinal = input.take() % 2;
        if (letter.kind == LetterKind::notice)
            letter.tag.instance = input.take() % (notices_kept + 1);
        letter.exchange = input.take();
        switch (input.take() % 16) {
        case 1: letter.session++; break;
        case 2: letter.hash++; break;
        case 3: letter.call.call += input.take() - uint64_t{128}; break;
        case 4: letter.call.collective = static_cast<Collective>(input.take()); break;
        case 5: std::memset(letter.call.codec, input.take(), sizeof letter.call.codec); break;
        default: break;
        }
        came(std::as_bytes(std::span(&letter, 1)), input);
    }

    // The same room for the same message, as the engine has it.
    void receive(uint32_t number) {
        const Room room{shape.slots + number, std::as_writable_bytes(std::span(*rooms_[number]))};
        const auto received = courier_.receive(1 + number % 2, {.ordinal = number / 2}, room);
        if (received.arrival != Courier::Arrival::here) return;
        require(received.bytes <= room_bytes, "more than the room holds");
        require(readers(number) == 1, "a message whose room is free");
        party_.mine().readers(room.slot).count.store(0);
    }

    void finish_fetch(bool whole) {
        if (waiting_.fetches.empty()) return;
        const auto fetch = waiting_.fetches.front();
        waiting_.fetches.pop_front();
        if (whole) std::memset(fetch.to, 0xab, fetch.bytes);
        events_.fetched(events_.context, fetch.token, whole);
    }

    uint32_t readers(uint32_t room) const {
        return party_.mine().readers(shape.slots + room).count.load();
    }

    void look_around() const {
        if (const auto failure = verdict_.failure()) {
            require(code_text(failure->code) != code_text(Code(-1)), "a failure without a name");
            require(failure->code != Code::success, "a failure that is none");
            require(failure->rank >= Error::no_rank && failure->rank < int32_t{ranks},
                    "a failure of a rank that is not there");
        }
        for (const uint32_t peer : party_.far_ranks) {
            const Segment &notes = party_.segments[peer];
            for (const uint64_t exchange : {0U, 1U})
                require(notes.line(exchange).bytes <= shape.line_bytes, "a line that is too long");
            for (uint32_t number = 0; number < notices_kept; number++)
                if (const auto notice = read_notice(notes, number))
                    require(notice->size() <= shape.notice_bytes, "a notice that is too long");
        }
        require(party_.mine().presence().begun.load() == call_.call, "another's call");
        for (uint64_t call = call_.call; call + 2 > call_.call && call != 0; call--)
            (void)history_.difference(call);
    }

    // A call ends when it has what it has found room for.
    void end_and_begin() {
        while (!waiting_.fetches.empty()) finish_fetch(true);
        for (uint32_t number = 0; number < shape.slots; number++) {
            if (readers(number) != 0) receive(number);
            require(readers(number) == 0, "a room that is never free again");
        }
        begin();
    }

    Memory memory_[ranks]{Memory(shape), Memory(shape_of_notes), Memory(shape_of_notes)};
    std::unique_ptr<std::array<std::byte, room_bytes>> rooms_[shape.slots] = {
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>()};
    Waiting::Network waiting_;
    Party party_ = make_party(memory_);
    CallHistory history_{party_};
    Verdict verdict_{party_};
    std::vector<Network> others_;
    Courier courier_{party_, history_, verdict_};
    NetworkEvents events_ = courier_.events();
    CallDescriptor call_{.count = 10, .codec = "none", .algorithm = "ring"};
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    Input input({data, bytes});
    const auto world = std::make_unique<World>();
    world->run(input);
    return 0;
}
