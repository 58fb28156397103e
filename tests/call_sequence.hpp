// Random sequences of calls on one communicator, in which one rank makes one call that disagrees
// with those of the others. A sequence follows from its seed alone, so that every rank, and the
// judge, can make it for themselves. Calls nothing of the library.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sequences {

enum class Kind : uint8_t {
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier,
    split,
    shrink,
    finalize,
    destroy
};
inline constexpr int kinds = 9;
const char *name(Kind kind);

// What the odd rank does differently.
enum class Disagreement : uint8_t {
    none, // a control: every call must succeed
    root, // of a broadcast
    count,
    type,
    op,
    codec,
    algorithm,
    order,    // two calls in the other order
    kind,     // another kind of call
    left_out, // a call that it does not make
    extra,    // a call that the others do not make
    split,    // instead of another call
    shrink,   // likewise
    finalize, // likewise
    destroy   // likewise: the rank ends the communicator early
};
inline constexpr int disagreements = 15;
const char *name(Disagreement disagreement);

// How the ranks run.
enum class Runner : uint8_t { init_all, threads, processes };
const char *name(Runner runner);

struct TypeRow {
    const char *name;
    uint32_t bytes;
    int exponent_bits, mantissa_bits; // 0 of integers
    bool is_float() const { return exponent_bits != 0; }
};
const TypeRow &type_row(int32_t type);
inline constexpr int32_t types = 12;

// What a call does not have stays as it is here, so that calls can be compared.
struct Call {
    Kind kind = Kind::barrier;
    uint32_t count = 0;
    int32_t type = 0;
    int32_t op = 0;
    int32_t root = 0;
    const char *codec = nullptr;     // points into a table
    const char *algorithm = nullptr; // likewise
    bool operator==(const Call &) const = default;

    bool has_data() const { return kind <= Kind::broadcast; }
    bool reduces() const { return kind <= Kind::reduce_scatter; }
    // Whether a right result is the same vector on every rank.
    bool equals_everywhere() const { return has_data() && kind != Kind::reduce_scatter; }
};
std::string text(const Call &call);

struct Sequence {
    uint64_t seed = 0;
    int ranks = 2;
    Runner runner = Runner::init_all;
    int hosts = 1;
    int colors = 1;        // in splits a rank's color is its remainder
    bool enqueues = false; // collectives are made on streams, and awaited one by one
    Disagreement disagreement = Disagreement::none;
    int odd_rank = 0;
    std::vector<std::vector<Call>> calls; // by rank; the last one is the only qcclCommDestroy

    int host_of(int rank) const { return rank * hosts / ranks; }
    // The collective position at which not all ranks make the same call; nothing: they agree.
    // Positions leave out qcclCommFinalize, which takes part in no exchange of a call.
    std::optional<size_t> first_difference() const;
    // Index of this position's call among those of the rank; their number where it has no such.
    size_t index_of(int rank, size_t position) const;
    // Whether the ranks may wait for each other before the end. Not where they make unequal numbers
    // of calls, because the odd one's missing calls are waited for; nor where a rank shrinks after
    // the difference: a shrink that returns the mismatch has to be repeated, and this one is not.
    bool may_meet_before_end() const;
};
// What sequences may contain.
struct Scope {
    bool has_network = true; // several hosts
};
Sequence make_sequence(uint64_t seed, const Scope &scope);
// A line for each rank.
std::string text(const Sequence &sequence);

inline constexpr int max_ranks = 5;
inline constexpr size_t max_calls = 16;

} // namespace sequences
