// A schedule lists what one rank does in one collective, as if the steps ran in order. Steps name
// chunks and no bytes, so the same schedule serves every message size. An algorithm, the schedule's
// author, writes it; place_codec, fuse and lower rewrite it; the engine runs the result. A SumOrder
// is the order in which the contributions of all ranks to one chunk are summed, brackets included:
// algorithms describe their order with it, and verify() checks it. Plain data without locks; any
// thread; nothing blocks.
//
// Schedules have a text form for people and tests: one step per line, one section per rank. Parsing
// checks the form of the steps only; verify() checks whether a schedule is right. Pure functions;
// any thread.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/rank_topology.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl {

// The index of no step, slot, run, task or message.
inline constexpr uint32_t no_index = ~uint32_t{0};

// ---- Steps of a rank

// The ranks that take part in a collective, as one of the ranks sees them.
struct Team {
    uint32_t size = 1;
    uint32_t rank = 0;
    uint32_t root = 0; // of collectives that have one
    // Locations of the ranks; the maker of the team owns it. Null: all ranks are in one location.
    const RankTopology *places = nullptr;

    // The rank `distance` ranks further round the team, and the rank as far behind.
    constexpr uint32_t after(uint32_t distance) const {
        return static_cast<uint32_t>((uint64_t{rank} + distance) % size);
    }
    constexpr uint32_t before(uint32_t distance) const { return after(size - distance % size); }
    // The position of a rank in the order in which rings pass the ranks, and the rank at a
    // position.
    uint32_t position(uint32_t of) const { return places ? places->position(of) : of; }
    uint32_t rank_at(uint32_t position) const {
        return places ? places->ring()[position] : position;
    }
    // Where every rank has a part for every other one: the chunk of the parts that this rank and
    // another one exchange, and the rank with which it exchanges a chunk. The chunk's number is the
    // sum of the two ranks' numbers, so it is the same for both directions: in place, the part that
    // a rank receives takes the place of the one that it sends to the same rank.
    constexpr uint32_t chunk_with(uint32_t other) const { return after(other); }
    constexpr uint32_t partner_in(uint32_t chunk) const {
        return (chunk % size + size - rank) % size;
    }
    bool operator==(const Team &) const = default;
};

// How a rank's own contribution enters a sum that the rank makes.
enum class OwnInput : uint8_t {
    exact,
    as_encoded, // like the others': as what its encoded bytes decode to
};

enum class SlotKind : uint8_t {
    none,        // the step has no such operand
    input,       // chunk of the caller's send buffer
    output,      // chunk of the caller's receive buffer
    accumulator, // unrounded values in the accumulator's type; only the engine sees them
    wire,        // message content: encoded bytes after place_codec, values before
};

// An operand that steps read and write. The index of an input, output or accumulator is its chunk.
// Input c and output c may be the same memory (in-place calls).
struct Slot {
    static constexpr uint32_t max_index = 0x1FFFFFFF;

    uint32_t kind : 3 = 0;
    uint32_t index : 29 = 0;

    constexpr Slot() = default;
    constexpr Slot(SlotKind k, uint32_t i)
        : kind(static_cast<uint32_t>(k) & 7U), index(i & max_index) {}
    constexpr SlotKind what() const { return static_cast<SlotKind>(kind); }
    constexpr bool is(SlotKind k) const { return what() == k; }
    // Returns the slot of the same kind whose index is `distance` higher.
    constexpr Slot after(uint32_t distance) const { return {what(), index + distance}; }
    constexpr bool operator==(const Slot &) const = default;
};

constexpr Slot input(uint32_t chunk) { return {SlotKind::input, chunk}; }
constexpr Slot output(uint32_t chunk) { return {SlotKind::output, chunk}; }
constexpr Slot sum(uint32_t chunk) { return {SlotKind::accumulator, chunk}; }
constexpr Slot wire(uint32_t index) { return {SlotKind::wire, index}; }

enum class Verb : uint8_t {
    send,       // src -> peer
    recv,       // dst <- peer
    reduce,     // dst op= src .. src + sources - 1, in that order
    copy,       // dst <- src
    encode,     // dst (wire) <- src
    decode,     // dst <- src (wire)
    decode_add, // dst op= src (wire)
};

constexpr bool computes(Verb verb) { return verb != Verb::send && verb != Verb::recv; }
// Returns true if the step adds to what its dst holds. In an author's schedule the first reduce
// into an accumulator stores. In a placed schedule an earlier step has always stored.
constexpr bool accumulates(Verb verb) { return verb == Verb::reduce || verb == Verb::decode_add; }

// POD of 24 bytes. The dependencies of a lowered schedule lie in a separate array.
struct Step {
    enum Flag : uint8_t {
        finishes = 1,   // src is the complete sum, which avg divides here, once (an author's copy
                        // or send; a placed schedule's copy or encode)
        joins_next = 2, // fuse: runs tile by tile together with the next step
        releases = 4,   // lower: the last step that reads the wire slot `src`
        as_encoded = 8, // author's reduce: adds the input `src` as what its encoded bytes decode
                        // to, whether or not any peer gets these bytes
        stays = 16,     // place_codec: an encode whose bytes are never sent
        inner = 32, // send, recv: of an unfinished value below the outermost tier, which may have a
                    // codec of its own; place_codec: encode and decode of such a value
        common = 64, // author's reduce: other ranks make the same sum, see make_common;
                     // place_codec: an encode of that sum, with the noise of `peer` and `ordinal`
    };

    static constexpr uint32_t common_ordinals = 64; // limit of the ordinals of common encodes

    Verb verb = Verb::copy;
    uint8_t flags = 0;
    uint16_t sources = 1; // reduce: number of consecutive slots from src on
    Slot dst = {};
    Slot src = {};
    uint32_t chunk = 0; // the chunk whose elements the step works on
    uint32_t peer = 0;  // send, recv: the other rank; common: the rank whose noise encodes the sum
    uint32_t ordinal = 0; // send, recv: number of the message between the two ranks, in that
                          // direction (set by lower); encode: key of its noise (set by
                          // place_codec), its number in the schedule or what make_common was given

    constexpr bool has(Flag flag) const { return (flags & flag) != 0; }
    // For an encode: returns true if plain values need not be stored, because steps can read them
    // from their source. A common sum has no lasting source.
    constexpr bool leaves_values() const { return has(stays) && !has(common); }
    // For an encode of rank `own`: returns the rank whose noise it uses.
    constexpr uint32_t noise_rank(uint32_t own) const { return has(common) ? peer : own; }
    bool operator==(const Step &) const = default;
};
static_assert(sizeof(Step) == 24);

// The steps of one rank.
struct Schedule {
    static constexpr uint32_t chunk_of_slot = ~uint32_t{0};

    uint32_t chunks = 0;
    // How many encoded values of its own a rank may hold at a time. Equal on all ranks, because it
    // decides how large a segment is. In a placed schedule the wire slots below `outbox` hold what
    // this rank encodes, and the other wire slots hold what comes from peers.
    uint32_t outbox = 0;
    uint32_t wires = 0;     // wire slots: 0 .. wires - 1
    bool is_placed = false; // place_codec has run
    std::vector<Step> steps = {};

    // The author's verbs; each appends a step. A wire slot that the author names holds a message
    // from a peer. `chunk` is the chunk that travels; it must be given if the slot does not name
    // one.
    void send(uint32_t peer, Slot src, uint32_t chunk = chunk_of_slot);
    void recv(uint32_t peer, Slot dst, uint32_t chunk = chunk_of_slot);
    // The first reduce into an accumulator stores. Adds the slots src to src + sources - 1 in
    // order.
    void reduce(Slot dst, Slot src, uint32_t sources = 1);
    // Adds an input as what its encoded bytes decode to.
    void reduce_as_encoded(Slot dst, Slot src);
    void copy(Slot dst, Slot src);
    // Marks the sum of the last reduce as one that several ranks make. Each of these ranks encodes
    // the sum and goes on with what the bytes decode to, even if it sends the bytes to no peer. The
    // bytes must be equal, so all of these ranks use the noise of one of them, `first`, and an
    // ordinal that no other common encode of theirs has.
    void make_common(uint32_t first, uint32_t ordinal);
    // Copies a complete sum. Here, and in send_finished, avg divides, once. Must come before the
    // sum is sent.
    void finish(Slot dst, Slot src);
    // Sends a complete sum of which this rank keeps nothing; nothing may read the sum afterwards.
    void send_finished(uint32_t peer, Slot src);

    bool operator==(const Schedule &) const = default;
};

// ---- Order of a sum

// A sum from the left. Its operands are contributions, or sums of their own. The place of a
// contribution is its number in the sum, read from left to right.
class SumOrder {
public:
    // A contribution, or a sum of operands.
    struct Term {
        uint32_t rank = 0; // without operands: the contributing rank
        std::vector<Term> operands = {};
    };

    // `first`, first + 1, ..., once round, without brackets.
    static SumOrder in_turn(uint32_t ranks, uint32_t first = 0);
    // The same along a ring, from position `first`; `ring` has the ranks by position.
    static SumOrder in_turn(std::span<const uint32_t> ring, uint32_t first);
    // A rank adds what its children sum, in increasing rank, to its own contribution. The root is
    // its own parent. `parents`: by rank.
    static SumOrder by_tree(std::span<const uint32_t> parents);
    // `sum` must contain every rank once.
    static SumOrder of(const Term &sum, uint32_t ranks);
    // The sum that by_tree describes, with members[i] in place of rank i's contribution.
    static Term of_tree(std::span<const uint32_t> parents, std::vector<Term> members);

    // The place of the rank's contribution.
    uint32_t place(uint32_t rank) const {
        return places_.empty() ? (rank + ranks_ - first_) % ranks_ : places_[rank];
    }
    // For a place other than the first: exactly one operand that starts there may be added to a
    // sum. Returns the place behind that operand.
    uint32_t operand_end(uint32_t place) const { return ends_.empty() ? place + 1 : ends_[place]; }
    // Returns the place at which that sum starts.
    uint32_t sum_begin(uint32_t place) const { return begins_.empty() ? 0 : begins_[place]; }

private:
    explicit SumOrder(uint32_t ranks) : ranks_(ranks) {}
    void lay(const Term &term, uint32_t &next);

    uint32_t ranks_;
    uint32_t first_ = 0;
    std::vector<uint32_t> places_;        // by rank; empty: in order from first_ on
    std::vector<uint32_t> begins_, ends_; // by place; empty: without brackets
};

// Returns how a team sums the contributions to a chunk.
using OrderOf = std::function<SumOrder(Collective collective, uint32_t ranks, uint32_t chunk)>;

// The order 0, 1, ..., P - 1.
SumOrder by_rank(Collective collective, uint32_t ranks, uint32_t chunk);
// The order in which a chunk passes the ranks of a ring, from its first rank to its last.
SumOrder by_ring(Collective collective, uint32_t ranks, uint32_t chunk);

// ---- Text

// Returns the text of a step: "encode wire(0) <- sum(2) #3 finishes".
std::string print(const Step &step);

// Returns the error (invalid_argument) "rank 2, step 7 (send wire(0) -> 3): REASON".
Error wrong_step(uint32_t rank, size_t number, const Step &step, const char *reason);

// A schedule, and the rank and team that it belongs to.
struct Section {
    Team team;
    Schedule schedule;

    bool operator==(const Section &) const = default;
};

// Returns a header line, then the steps with their numbers:
//   schedule rank 1 of 4 root 0 chunks 4 outbox 2 wires 7 placed
//       0: encode wire(0) <- input(1)
//       1: send wire(0) -> 2 chunk 1 releases
// The chunk is printed if no operand names it, and the ordinal after "#" if it is not 0. "common"
// is followed by the rank whose noise is used.
std::string print(const Section &section);

// Parses what print writes. Step numbers and spaces around words are optional, and a line that
// starts with "//" is a comment. The input may be hostile: any byte sequence gives a result or an
// error (invalid_argument) that names the line and what is wrong with it.
Result<std::vector<Section>> parse(std::string_view text);

} // namespace qccl
