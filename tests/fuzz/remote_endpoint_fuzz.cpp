// Fuzzes transport/remote_endpoint with hostile messages: from strangers, who do not know the
// session of the ranks, and from a remote rank that knows the session but runs another release or
// is broken. Messages of strangers change nothing. Whatever the remote rank sends, nothing is
// written past a receive buffer or an eager slot, no rendezvous message is used twice or forgotten,
// no record is longer than its memory, and the first difference between the calls of the ranks can
// be described.
#include "tests/transport/memory_network.hpp"

#include "memory/segment.hpp"
#include "transport/remote_endpoint.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace qccl;
using namespace qtest;

namespace {

constexpr uint64_t session = 0x5e55;
constexpr uint32_t ranks = 3; // this rank is rank 0; the others are remote
constexpr SegmentShape shape{
    .ranks = ranks, .slots = 4, .eager_slot_bytes = 64, .outbox_bytes = 4096, .inbox_bytes = 4096};
constexpr SegmentShape shape_of_notes{.ranks = 0, .eager_slot_bytes = shape.eager_slot_bytes};
constexpr size_t room_bytes = 48;

void require(bool condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

// Reads the input of the fuzzer; zeros follow after its end.
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

// A rendezvous message, whose bytes wait at the sender. The network holds all such messages, and
// frees those that were never pulled when it is closed.
struct Waiting : RendezvousHandle {
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
    uint64_t call; // the call that the message belongs to

    static void consume(RendezvousHandle *handle) {
        auto &tickets = static_cast<Waiting *>(handle)->network->tickets;
        const auto it = std::find_if(tickets.begin(), tickets.end(),
                                     [&](const auto &each) { return each.get() == handle; });
        require(it != tickets.end(), "bytes that are used twice");
        tickets.erase(it);
    }
};

const NetworkModule &module() {
    static const NetworkModule made = [] {
        NetworkModule module = memory_network::module;
        module.pull = [](NetworkEnd *, RendezvousHandle *handle, void *to, size_t bytes,
                         uint64_t token) {
            require(bytes == handle->bytes, "bytes that are fetched in part");
            static_cast<Waiting *>(handle)->network->fetches.push_back({to, bytes, token});
            Waiting::consume(handle);
        };
        module.discard = [](NetworkEnd *, RendezvousHandle *handle) { Waiting::consume(handle); };
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

PeerTable make_peer_table(const Memory (&memory)[ranks]) {
    PeerTable peer_table(0, Fences::both, {1, 2, 3});
    peer_table.local_ranks = {0};
    peer_table.remote_ranks = {1, 2};
    peer_table.eager_slot_bytes = shape.eager_slot_bytes;
    for (uint32_t rank = 0; rank < ranks; rank++)
        peer_table.segments.push_back(memory[rank].segment(rank == 0 ? shape : shape_of_notes));
    return peer_table;
}

class World {
public:
    World() {
        auto network = Network::open(module(), {.peers = ranks}, events_);
        for (const uint32_t peer : peer_table_.remote_ranks) {
            auto other = Network::open(memory_network::module, {.peers = ranks}, events_);
            others_.push_back(std::move(*other));
            network->add_peer(peer, others_.back().address());
        }
        remote_.use(std::move(*network), session);
        begin();
    }

    void run(Input &input) {
        for (bool goes_on = true; goes_on && !input.is_over();) {
            switch (input.take() % 8) {
            case 0: tell_anything(input); break;
            case 1: goes_on = end_and_begin(); break;
            case 2: receive(input.take() % shape.slots); break;
            case 3: finish_fetch(input.take() % 2 == 0); break;
            case 4: remote_.progress(); break;
            default: tell(input); break;
            }
            look_around();
        }
        (void)end_and_begin();
    }

private:
    void begin() {
        call_.call++;
        history_.begin(call_, call_.numbers());
        history_.publish();
        (void)remote_.begin();
        for (const auto &handle : waiting_.tickets)
            require(handle->call >= call_.call, "bytes of an earlier call that wait for ever");
    }

    // The state that a message may change.
    struct State {
        bool is_failed;
        std::array<uint64_t, size_t{ranks} * 7> notes;
        bool operator==(const State &) const = default;
    };
    State state() const {
        State now{shared_error_.is_set(), {}};
        auto next = now.notes.begin();
        for (const Segment &segment : peer_table_.segments) {
            const RankStatus &status = segment.status();
            for (const uint64_t note :
                 {status.begun.load(), status.ended.load(), uint64_t{status.has_left.load()},
                  uint64_t{status.waits_on.load()}, segment.eager_header(0).stamp.load(),
                  segment.eager_header(1).stamp.load(), version_of_record(segment, 0)})
                *next++ = note;
        }
        return now;
    }

    void came(std::span<const std::byte> head, Input &input) {
        MessageHeader header;
        if (head.size() == sizeof header) std::memcpy(&header, head.data(), sizeof header);
        const bool is_ours = head.size() == sizeof header && header.session == session &&
                             header.from != 0 && header.from < ranks;
        const State before = state();
        const auto form = input.take();
        if (form % 4 == 3) {
            waiting_.tickets.push_back(std::make_unique<Waiting>());
            Waiting &handle = *waiting_.tickets.back();
            handle.network = &waiting_;
            handle.call = header.call.call;
            handle.bytes = form % 8 == 3 ? input.take() : input.take<uint64_t>();
            const size_t others = waiting_.tickets.size() - 1;
            events_.on_message(events_.context, head.data(), head.size(), nullptr, handle.bytes,
                               &handle);
            require(waiting_.tickets.size() == others ||
                        (is_ours && header.kind == MessageKind::data),
                    "bytes that wait for nobody");
        } else {
            const auto data = form % 4 == 2 && header.kind == MessageKind::batch
                                  ? take_batch(input)
                                  : input.take_bytes(form % 4 == 1 ? sizeof(Error) : input.take());
            events_.on_message(events_.context, head.data(), head.size(), data.data(), data.size(),
                               nullptr);
        }
        require(is_ours || state() == before, "a stranger who changes something");
    }

    // Builds a batch of whole entries, sometimes with stray bytes behind them.
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

    // Delivers random bytes as a header, with the right session in half of the cases.
    void tell_anything(Input &input) {
        const size_t bytes = input.take() % 4 != 0 ? sizeof(MessageHeader) : input.take();
        const bool is_known = input.take() % 2 == 0;
        auto head = input.take_bytes(bytes);
        if (is_known && bytes >= sizeof session)
            std::memcpy(head.data() + offsetof(MessageHeader, session), &session, sizeof session);
        came(head, input);
    }

    // Delivers a header as a rank may send it, sometimes with one field changed.
    void tell(Input &input) {
        MessageHeader header{.session = session};
        header.kind = static_cast<MessageKind>(input.take() % 10);
        header.from = 1 + input.take() % ranks;
        header.ended = input.take();
        header.waits_on = input.take();
        header.call = call_;
        header.hash = history_.hash();
        header.about = call_.call + input.take() % 4;
        header.tag.ordinal = input.take() % 2;
        if (header.kind == MessageKind::record)
            header.tag.instance = input.take() % (records_kept + 1);
        header.exchange = input.take();
        switch (input.take() % 16) {
        case 1: header.session++; break;
        case 2: header.hash++; break;
        case 3: header.call.call += input.take() - uint64_t{128}; break;
        case 4: header.call.collective = static_cast<Collective>(input.take()); break;
        case 5: std::memset(header.call.codec, input.take(), sizeof header.call.codec); break;
        default: break;
        }
        came(std::as_bytes(std::span(&header, 1)), input);
    }

    // As in the engine, the same message always gets the same buffer.
    void receive(uint32_t number) {
        const RecvBuffer buffer{shape.slots + number,
                                std::as_writable_bytes(std::span(*rooms_[number]))};
        const auto received = remote_.receive(1 + number % 2, {.ordinal = number / 2}, buffer);
        using enum RemoteEndpoint::ReceiveState;
        if (received.state == other_call || received.state == too_long) has_broken_rules_ = true;
        if (received.state != here) return;
        require(received.bytes <= room_bytes, "more than the buffer holds");
        require(readers(number) == 1, "a message whose buffer is free");
        peer_table_.mine().readers(buffer.slot).count.store(0);
    }

    void finish_fetch(bool whole) {
        if (waiting_.fetches.empty()) return;
        const auto fetch = waiting_.fetches.front();
        waiting_.fetches.pop_front();
        if (whole) std::memset(fetch.to, 0xab, fetch.bytes);
        events_.on_pulled(events_.context, fetch.token, whole);
    }

    uint32_t readers(uint32_t buffer) const {
        return peer_table_.mine().readers(shape.slots + buffer).count.load();
    }

    void look_around() const {
        if (const auto failure = shared_error_.failure()) {
            require(code_text(failure->code) != code_text(Code(-1)), "a failure without a name");
            require(failure->code != Code::success, "a failure that is none");
            require(failure->rank >= Error::no_rank && failure->rank < int32_t{ranks},
                    "a failure of a rank that is not there");
        }
        for (const uint32_t peer : peer_table_.remote_ranks) {
            const Segment &notes = peer_table_.segments[peer];
            for (uint64_t exchange = 0; exchange < eager_slots_kept; exchange++)
                require(notes.eager_header(exchange).bytes <= shape.eager_slot_bytes,
                        "a line that is too long");
            for (uint32_t number = 0; number < records_kept; number++)
                if (const auto notice = read_record(notes, number))
                    require(notice->size() <= shape.record_bytes, "a notice that is too long");
        }
        require(peer_table_.mine().status().begun.load() == call_.call, "another's call");
        for (uint64_t call = call_.call; call + 2 > call_.call && call != 0; call--)
            (void)history_.difference(call);
    }

    // Ends the call, once all messages that have found a buffer are received, and begins the next
    // call. Returns false after a message that breaks the rules, which is the end of the
    // communicator: the engine receives and begins nothing more, and messages behind it may keep
    // their buffers.
    bool end_and_begin() {
        while (!waiting_.fetches.empty()) finish_fetch(true);
        for (uint32_t number = 0; number < shape.slots; number++) {
            if (readers(number) != 0) receive(number);
            if (has_broken_rules_) return false;
            require(readers(number) == 0, "a buffer that is never free again");
        }
        begin();
        return true;
    }

    Memory memory_[ranks]{Memory(shape), Memory(shape_of_notes), Memory(shape_of_notes)};
    std::unique_ptr<std::array<std::byte, room_bytes>> rooms_[shape.slots] = {
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>(),
        std::make_unique<std::array<std::byte, room_bytes>>()};
    Waiting::Network waiting_;
    PeerTable peer_table_ = make_peer_table(memory_);
    CallHistory history_{peer_table_};
    SharedError shared_error_{peer_table_};
    std::vector<Network> others_;
    RemoteEndpoint remote_{peer_table_, history_, shared_error_};
    NetworkEvents events_ = remote_.events();
    CallDescriptor call_{.count = 10, .codec = "none", .algorithm = "ring"};
    // A receive call has met a message of another call, or one that is too long.
    bool has_broken_rules_ = false;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    Input input({data, bytes});
    const auto world = std::make_unique<World>();
    world->run(input);
    return 0;
}
