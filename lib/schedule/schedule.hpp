// A schedule: what one rank does in one collective, written as if it ran in order. Names chunks,
// never bytes: the same schedule serves every message size. Knows no codec's arithmetic, no
// transport, no clock.
#pragma once

#include "schedule/places.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace qccl {

struct Team {
    uint32_t size = 1;
    uint32_t rank = 0;
    uint32_t root = 0; // broadcast only
    // Where its ranks are; held by whoever made the team. None: all in one place.
    const Places *places = nullptr;

    // The rank `distance` places further round the team, and the one as far behind.
    constexpr uint32_t after(uint32_t distance) const {
        return static_cast<uint32_t>((uint64_t{rank} + distance) % size);
    }
    constexpr uint32_t before(uint32_t distance) const { return after(size - distance % size); }
    // Where a rank stands in the order in which rings pass them, and who stands there.
    uint32_t position(uint32_t of) const { return places ? places->position(of) : of; }
    uint32_t rank_at(uint32_t position) const {
        return places ? places->ring()[position] : position;
    }
    bool operator==(const Team &) const = default;
};

// How a rank's own contribution enters a sum that it makes.
enum class OwnInput : uint8_t {
    exact,
    as_encoded, // like everybody's: as what its encoded bytes decode to
};

enum class SlotKind : uint8_t {
    none,        // the step has no such operand
    input,       // chunk of the caller's send buffer
    output,      // chunk of the caller's receive buffer
    accumulator, // unrounded values in the accumulator's type, never seen outside the engine
    wire,        // what travels: encoded bytes once place_codec has run, values before
};

// A place that steps read and write. The index of an input, output or accumulator is its chunk's.
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
    // The slot of the same kind `distance` further on.
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
// Whether the step adds to what its dst holds. In an author's schedule the first reduce into an
// accumulator stores; in a placed one whatever is added to has been stored before.
constexpr bool accumulates(Verb verb) { return verb == Verb::reduce || verb == Verb::decode_add; }

// POD of 24 bytes; the dependencies of a lowered schedule lie in a side array.
struct Step {
    enum Flag : uint8_t {
        finishes = 1,   // src is the complete sum: avg divides it here, once
        joins_next = 2, // fuse: runs tile by tile together with the next step
        releases = 4,   // lower: the last step that reads the wire slot `src`
        as_encoded = 8, // an author's reduce: the input `src` is added as what its encoded bytes
                        // decode to, whether or not anybody is sent them
        stays = 16,     // place_codec: an encode whose bytes nobody is sent
        inner = 32,     // send, recv: of a value that is not finished, below the outermost tier,
                        // which may have a codec of its own; place_codec: encode and decode of it
        common = 64,    // an author's reduce: other ranks make the same sum, see make_common;
                        // place_codec: an encode of it, with the noise of `peer` and `ordinal`
    };

    static constexpr uint32_t common_ordinals = 64; // how many there may be of what is common

    Verb verb = Verb::copy;
    uint8_t flags = 0;
    uint16_t sources = 1; // reduce: how many consecutive slots from src on
    Slot dst = {};
    Slot src = {};
    uint32_t chunk = 0;   // whose range of elements the step works on
    uint32_t peer = 0;    // send, recv; of what is common, the rank whose noise encodes it
    uint32_t ordinal = 0; // send, recv: number of the message between the two ranks, in that
                          // direction (lower); encode: number of the encode in the schedule, or
                          // what it was given as common, which keys its noise (place_codec)

    constexpr bool has(Flag flag) const { return (flags & flag) != 0; }
    // Of an encode: values that travel as they are need not be stored by it, but are read where
    // they lie. A sum lies nowhere for long.
    constexpr bool leaves_values() const { return has(stays) && !has(common); }
    // Of an encode of this rank: the rank whose noise it takes.
    constexpr uint32_t noise_rank(uint32_t own) const { return has(common) ? peer : own; }
    bool operator==(const Step &) const = default;
};
static_assert(sizeof(Step) == 24);

struct Schedule {
    static constexpr uint32_t chunk_of_slot = ~uint32_t{0};

    uint32_t chunks = 0;
    // How many values of its own a rank may have encoded and not yet given up: equal on all ranks,
    // for it decides how large a segment is. In a placed schedule the wire slots below `outbox`
    // hold what this rank encodes, the others what came from peers.
    uint32_t outbox = 0;
    uint32_t wires = 0;     // wire slots: 0 .. wires - 1
    bool is_placed = false; // place_codec has run
    std::vector<Step> steps = {};

    // The author's verbs. A wire slot that the author names holds what came from a peer; the chunk
    // that travels has to be named where the slot does not.
    void send(uint32_t peer, Slot src, uint32_t chunk = chunk_of_slot);
    void recv(uint32_t peer, Slot dst, uint32_t chunk = chunk_of_slot);
    // The first reduce into an accumulator stores.
    void reduce(Slot dst, Slot src, uint32_t sources = 1);
    void reduce_as_encoded(Slot dst, Slot src);
    void copy(Slot dst, Slot src);
    // Marks the sum that the last reduce made as one that several ranks make. Each of them encodes
    // it and goes on with what the bytes decode to, also where it sends them to nobody. So that
    // these bytes are the same, all take the noise of one of them, `first`, and an ordinal that no
    // other encode of theirs has.
    void make_common(uint32_t first, uint32_t ordinal);
    // A copy of a complete sum: here, and nowhere else, avg divides. Comes before what sends it.
    void finish(Slot dst, Slot src);

    bool operator==(const Schedule &) const = default;
};

} // namespace qccl
