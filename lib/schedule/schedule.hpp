// A schedule: what one rank does in one collective, written as if it ran in order. Names chunks,
// never bytes: the same schedule serves every message size. Knows no codec's arithmetic, no
// transport, no clock.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

struct Team {
    uint32_t size = 1;
    uint32_t rank = 0;
    uint32_t root = 0; // broadcast only
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
    uint32_t kind : 3 = 0;
    uint32_t index : 29 = 0;

    constexpr Slot() = default;
    constexpr Slot(SlotKind k, uint32_t i) : kind(static_cast<uint32_t>(k) & 7U), index(i & 0x1FFFFFFFU) {}
    constexpr SlotKind what() const { return static_cast<SlotKind>(kind); }
    constexpr bool operator==(const Slot &) const = default;
};

constexpr Slot input(uint32_t chunk) { return {SlotKind::input, chunk}; }
constexpr Slot output(uint32_t chunk) { return {SlotKind::output, chunk}; }
constexpr Slot sum(uint32_t chunk) { return {SlotKind::accumulator, chunk}; }
constexpr Slot wire(uint32_t index) { return {SlotKind::wire, index}; }

enum class Verb : uint8_t {
    send,       // src -> peer
    recv,       // dst <- peer
    reduce,     // dst op= src .. src + sources, in that order; the first write of dst stores
    copy,       // dst <- src
    encode,     // dst (wire) <- src
    decode,     // dst <- src (wire)
    decode_add, // dst op= src (wire)
};

// POD of 24 bytes; the dependencies of a lowered schedule lie in a side array.
struct Step {
    enum Flag : uint8_t {
        finishes = 1,    // src is the finished sum: avg divides it here, once
        joins_next = 2,  // shape: runs tile by tile together with the next step
    };

    Verb verb = Verb::copy;
    uint8_t flags = 0;
    uint16_t sources = 1; // reduce: how many consecutive slots from src on
    Slot dst;
    Slot src;
    uint32_t chunk = 0;   // whose range of elements the step works on
    uint32_t peer = 0;    // send, recv
    uint32_t ordinal = 0; // send, recv: number of the message between the two ranks, in that
                          // direction; encode: number of the encode in the schedule (noise)

    bool operator==(const Step &) const = default;
};
static_assert(sizeof(Step) == 24);

struct Schedule {
    uint32_t chunks = 0;
    uint32_t wires = 0; // wire slots named by the steps: 0 .. wires - 1
    std::vector<Step> steps;

    // The author's verbs. send and recv number their messages; a wire slot that the author names
    // holds what came from a peer until place_codec decides how it is read.
    void send(uint32_t peer, Slot src);
    void recv(uint32_t peer, Slot dst);
    void reduce(Slot dst, Slot src, uint16_t sources = 1);
    void copy(Slot dst, Slot src);
    // As copy and reduce-free stores of a complete sum: avg divides at this point.
    void finish(Slot dst, Slot src);

    bool operator==(const Schedule &) const = default;
};

} // namespace qccl
