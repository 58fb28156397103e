// Proves that the schedules of all ranks are right together. verify() runs them on expressions
// instead of values; in it every send is done at once, as in the engine. It checks the contract's
// orders of sums and needs neither algorithms nor codecs. verify_synchronous() proves that the
// schedules finish even if sends are synchronous, as in a transport without buffers: a send is done
// only when its receive has been posted. Tests and qccl-info verify use both. Pure functions; any
// thread.
//
// verify.cpp and verify_synchronous.cpp define the two proofs; verify_parts.cpp defines what the
// first one is made of, which the second half of this header declares. check_structure checks that
// each step of a rank's schedule makes sense by itself (operands of the right kinds, in range and
// of one chunk), and check_frame that all ranks agree on what must be equal; neither follows what
// the slots hold. check_races checks that the dependencies order every two steps that touch the
// same slot if one of them writes, however the engine schedules the rest; it does not rely on how
// the dependencies were derived.
//
// An expression describes what a slot holds, over the contributions of the ranks: which
// contributions were added in which order, and what was encoded on the way. Equal expressions are
// one node, so comparing two values of thousands of terms compares two numbers. MessageQueues has
// the messages in flight, a queue for each pair of ranks and direction; their values are opaque
// numbers. verify() uses all of these, on one thread; nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "schedule/lower.hpp"
#include "schedule/noise_moments.hpp"
#include "schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace qccl {

// ---- Proof of the results

// The claim that verify() proves.
struct Theorem {
    Collective collective = Collective::all_reduce;
    OrderOf order = by_rank;
    uint32_t ranks = 1;
    uint32_t root = 0;
    OwnInput own = OwnInput::exact;         // for sums of more than one rank
    OwnerKeeps owner = OwnerKeeps::decoded; // for collectives with owners
};

// Counts taken during the proof.
struct Verified {
    uint64_t steps = 0;
    uint64_t messages = 0;
    uint32_t rounds = 0; // the longest chain of messages that wait for one another
    // What the encodes on the way to a result have encoded of it: in the outermost tier, and below.
    NoiseMoments noise, inner_noise;
};

// Returns a rank's schedule, as the author wrote it or placed, joined or not. Called once for each
// rank, in order.
using ScheduleOf = std::function<Result<Schedule>(uint32_t rank)>;

// Proves that
// - every output of every rank holds the contributions of all ranks (for a gather or a broadcast:
//   the contribution of the source), each once, summed in the contract's order, the adding rank's
//   own as the theorem says, divided once if avg divides;
// - each output is the same expression on all ranks: what one final encode decodes to, if anything
//   was encoded after the last addition; where ranks exchange parts, each output holds the part of
//   the rank that it belongs to; where results are prefixes, each covers the ranks up to its own;
//   where the theorem says that owners keep their values exact, the owner's output holds its
//   contribution, never encoded, and the same output is the same expression on all other ranks;
// - messages match in chunk, tier, order and number; a value that was encoded for one tier travels
//   and is decoded in that tier, and a finished value belongs to the outermost tier;
// - no two steps race under the dependencies that lower derives (check_races);
// - no rank waits for ever, even with one lane and an engine that takes steps in order, a run of
//   joined steps at once; every wire slot is given back in the end, so that the next instance
//   starts from the same state as the first.
// The error (invalid_argument) names the rank, the first wrong step and the reason.
Result<Verified> verify(const Theorem &theorem, const ScheduleOf &schedule_of);

// ---- Proof for synchronous sends

struct SynchronousProof {
    uint64_t messages = 0;
    // How many tasks (sends, receives, runs of joined steps) a rank must have in flight, from the
    // oldest unfinished one on; with fewer, the ranks would wait for one another for ever. 1: sends
    // and receives may block.
    uint32_t in_flight = 1;
};

// A rank posts a send or a receive, or computes, as soon as the steps that this depends on are
// done, and the own wire slots that it encodes into have been read. The error (invalid_argument)
// names two ranks that wait for each other, and their steps. The schedules must have passed
// verify(); `schedule_of` is called once for each rank, in order.
Result<SynchronousProof> verify_synchronous(uint32_t ranks, const ScheduleOf &schedule_of);

// ---- Steps by themselves

// Checks the schedule's counts, and that they equal those of `first`, the schedule of rank 0.
// `has_chunk_per_rank`: there must be a chunk for each rank. The error is invalid_argument.
Done check_frame(const Schedule &schedule, const Schedule &first, const Team &team,
                 bool has_chunk_per_rank);
// Checks every step. The error (invalid_argument) names the rank, the step and the reason.
Done check_structure(const Schedule &schedule, Collective collective, const Team &team);

// ---- Races

// The schedule must pass check_structure. The error (invalid_argument) names `rank` and the steps
// that race.
Done check_races(const Schedule &schedule, const Dependencies &dependencies, uint32_t rank);

// ---- What slots hold

using Expression = uint32_t;

// Stores expressions. A contribution is named by its place in the order in which the contract sums
// it, and not by rank. Then the same sum of another chunk, which starts at another rank, is the
// same node.
class Expressions {
public:
    static constexpr Expression none = ~Expression{0};

    // A value made of contributions [begin, end) of the order, summed in that order from the left.
    struct Node {
        enum class Kind : uint8_t { leaf, encode, add, finish };

        Kind kind;
        bool is_finished = false; // avg has divided it
        bool has_final = false;   // a complete result has been encoded in it
        uint32_t begin = 0, end = 0;
        uint32_t a = 0, b = 0; // operands; the function that makes the node defines them
        // Of the numbers of contributions encoded: in the outermost tier, and below.
        NoiseMoments noise = {}, inner_noise = {};

        bool is_same(const Node &other) const {
            return kind == other.kind && begin == other.begin && a == other.a && b == other.b;
        }
    };

    // `complete` is the number of contributions to a result.
    explicit Expressions(uint32_t complete) : complete_(complete), table_(initial_table, none) {}

    // Returns the contribution at `place` of the order. Where every rank has a part for every other
    // one, contributions differ by `giver`, too.
    Expression leaf(uint32_t place, uint32_t giver = 0);
    // Returns the giver of a value that is no sum.
    uint32_t giver_of(Expression value) const;
    // Returns `value` as encoded by the rank at `place`; `which` numbers the encodes of a chunk on
    // that rank. Two encodes of the same values are two different values, because they may round
    // differently.
    Expression encode(Expression value, uint32_t place, uint32_t which, bool is_inner);
    // Adds `term` to `sum`. Returns none if `term` is not the operand that follows those of `sum`
    // in the order. If `sum` has several contributions, the two may also be exchanged: the result
    // is the same, so a rank that holds a partial sum need not set the sum aside for the operand
    // that comes first.
    Expression add(Expression sum, Expression term, const SumOrder &order);
    // Adds `term` to `sum` if the contributions of one follow those of the other, without brackets.
    Expression add_next(Expression sum, Expression term);
    // Finishes a complete sum, which is where avg divides. Returns none if `value` is not complete,
    // or is finished already.
    Expression finish(Expression value);

    const Node &operator[](Expression e) const { return nodes_[e]; }
    bool is_encode(Expression e, Expression of) const {
        return nodes_[e].kind == Node::Kind::encode && nodes_[e].a == of;
    }
    bool is_complete(Expression e) const {
        return nodes_[e].begin == 0 && nodes_[e].end == complete_;
    }
    // Returns, for example, "contributions 0 to 3 of 5".
    std::string describe(Expression e) const;

private:
    static constexpr size_t initial_table = 1024; // a power of two
    static constexpr uint32_t which_bits = 8;     // low bits of an encode's operand b

    Expression intern(const Node &node);
    Expression intern_sum(Expression left, Expression right);
    void grow();
    static uint64_t hash(const Node &node);

    uint32_t complete_;
    std::vector<Node> nodes_;
    std::vector<Expression> table_; // open addressing, at most half full
};

// ---- Messages in flight

// A message in flight.
struct Envelope {
    uint32_t value = 0;
    uint32_t origin = 0; // the wire slot, numbered over all ranks, that holds the bytes
    uint32_t rounds = 0; // of the sender
    uint32_t step = 0;   // of the sender
    uint32_t chunk = 0;
    bool is_inner = false; // sent below the outermost tier
    uint32_t next = 0;     // in the queue or in the free list
};

// The content of a wire slot, and the slot of the rank that encoded the content.
struct Parcel {
    static constexpr uint32_t none = ~uint32_t{0};

    uint32_t value = none;
    uint32_t chunk = 0;
    uint32_t origin = none;
    bool stays = false; // no rank may send it
    bool is_inner = false;
};

// All queues share one store, because there are many pairs and few messages in flight.
class MessageQueues {
public:
    explicit MessageQueues(uint32_t ranks) : ranks_(ranks), queues_(size_t{ranks} * ranks) {}

    bool is_empty(uint32_t from, uint32_t to) const { return queue(from, to).first == none; }

    void put(uint32_t from, uint32_t to, const Envelope &envelope) {
        const uint32_t at = allocate();
        store_[at] = envelope;
        store_[at].next = none;
        Queue &q = queues_[size_t{from} * ranks_ + to];
        if (q.first == none)
            q.first = at;
        else
            store_[q.last].next = at;
        q.last = at;
    }

    // Removes the oldest message. The queue must not be empty.
    Envelope take(uint32_t from, uint32_t to) {
        Queue &q = queues_[size_t{from} * ranks_ + to];
        const uint32_t at = q.first;
        q.first = store_[at].next;
        const Envelope envelope = store_[at];
        store_[at].next = free_;
        free_ = at;
        return envelope;
    }

    // Returns a message of this sender that is still in a queue; null if there is none.
    const Envelope *first_from(uint32_t from) const {
        for (uint32_t to = 0; to < ranks_; to++)
            if (!is_empty(from, to)) return &store_[queue(from, to).first];
        return nullptr;
    }

private:
    static constexpr uint32_t none = ~uint32_t{0};

    struct Queue {
        uint32_t first = none;
        uint32_t last = none;
    };

    const Queue &queue(uint32_t from, uint32_t to) const {
        return queues_[size_t{from} * ranks_ + to];
    }
    uint32_t allocate() {
        if (free_ == none) {
            store_.emplace_back();
            return static_cast<uint32_t>(store_.size() - 1);
        }
        const uint32_t at = free_;
        free_ = store_[at].next;
        return at;
    }

    size_t ranks_;
    std::vector<Queue> queues_;
    std::vector<Envelope> store_;
    uint32_t free_ = none;
};

} // namespace qccl
