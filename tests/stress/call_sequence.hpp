// Random sequences of calls on one communicator, in which one rank makes one call that disagrees
// with those of the others. Collectives are plain, prepared, or several in a group; messages go to
// the next rank; splits, shrinks and duplicates make communicators that are used, too. A sequence
// follows from its seed alone, so that each rank and the judge can compute it by themselves. Used
// by the test program disagreements. Pure; any thread.
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
    reduce,
    scan,
    exscan,
    all_gather,
    broadcast,
    gather,
    scatter,
    all_to_all,
    barrier,
    split,
    shrink,
    dup,
    messages, // every rank sends to the next one and receives from the one before
    finalize,
    destroy
};
inline constexpr int kinds = 17, collectives = 11;
inline constexpr int comm_makers = 3; // the kinds after the collectives make communicators
const char *name(Kind kind);

// How the calls of the odd rank differ from those of the others.
enum class Disagreement : uint8_t {
    none, // control case: every call must succeed
    root, // of a collective that has one
    count,
    type,
    op,
    codec,
    algorithm,
    order,    // two calls in reverse order
    kind,     // another kind of call
    left_out, // a call that the odd rank does not make
    extra,    // a call that the others do not make
    split,    // a split instead of another call
    shrink,   // a shrink instead of another call
    finalize, // a finalize instead of another call
    destroy   // the odd rank ends the communicator early
};
inline constexpr int disagreements = 15;
const char *name(Disagreement disagreement);

// The threads or processes in which the ranks run.
enum class Runner : uint8_t { init_all, threads, processes };
const char *name(Runner runner);

struct TypeRow {
    const char *name;
    uint32_t bytes;
    int exponent_bits, mantissa_bits; // 0 for integers
    bool is_float() const { return exponent_bits != 0; }
};
const TypeRow &type_row(int32_t type);
inline constexpr int32_t types = 12;

// How a call is made. Ranks that make the same call make it in the same form.
enum class CallForm : uint8_t { plain, prepared, grouped };

// Members that a kind of call does not use keep their defaults, so that calls can be compared.
struct Call {
    Kind kind = Kind::barrier;
    uint32_t count = 0;
    int32_t type = 0;
    int32_t op = 0;
    int32_t root = 0;
    const char *codec = nullptr;     // points into a table
    const char *algorithm = nullptr; // points into a table
    CallForm form = CallForm::plain;
    int grouped = 1; // equal calls of the group, each on buffers of its own
    bool operator==(const Call &) const = default;

    // Whether the calls differ in their form alone, so that ranks cannot tell one from the other.
    bool differs_in_form(const Call &other) const {
        Call same = other;
        same.form = form;
        same.grouped = grouped;
        return same == *this && other != *this;
    }
    bool is_collective() const { return static_cast<int>(kind) < collectives; }
    bool has_data() const { return kind <= Kind::all_to_all || kind == Kind::messages; }
    bool reduces() const { return kind <= Kind::exscan; }
    bool is_prefix() const { return kind == Kind::scan || kind == Kind::exscan; }
    bool has_root() const {
        return kind == Kind::reduce || (kind >= Kind::broadcast && kind <= Kind::scatter);
    }
    // Whether the rank has a result, and whether its result is its own part of a vector.
    bool has_result(int rank) const {
        if (kind == Kind::exscan) return rank > 0;
        return (kind != Kind::reduce && kind != Kind::gather) || rank == root;
    }
    bool scatters() const { return kind == Kind::reduce_scatter || kind == Kind::scatter; }
    bool gathers() const { return kind == Kind::all_gather || kind == Kind::gather; }
    bool exchanges() const { return kind == Kind::all_to_all; }
    // Whether every rank must receive the same vector.
    bool equals_everywhere() const {
        return kind == Kind::all_reduce || kind == Kind::all_gather || kind == Kind::broadcast;
    }
};
std::string text(const Call &call);

struct Sequence {
    uint64_t seed = 0;
    int ranks = 2;
    Runner runner = Runner::init_all;
    int hosts = 1;
    int colors = 1;        // in splits a rank's color is its number modulo `colors`
    bool enqueues = false; // collectives go to streams, and each is synchronized before the next
    Disagreement disagreement = Disagreement::none;
    int odd_rank = 0;
    std::vector<std::vector<Call>> calls; // by rank; only the last call is a qcclCommDestroy

    int host_of(int rank) const { return rank * hosts / ranks; }
    // Returns the first position at which not all ranks make the same call; nothing if all ranks
    // agree. Positions do not count qcclCommFinalize, because ranks exchange nothing for it.
    std::optional<size_t> first_difference() const;
    // Returns the index of this position's call among the calls of the rank, or the number of those
    // calls if the rank has no call at this position.
    size_t index_of(int rank, size_t position) const;
    // Whether the ranks may wait for each other before the end. They may not if they make unequal
    // numbers of calls, because the missing calls of the odd rank are waited for. They may not
    // either if a rank shrinks after the difference: a shrink that returns the mismatch has to be
    // repeated, and the sequences do not repeat it.
    bool may_meet_before_end() const;
};
// Limits what sequences may contain.
struct Scope {
    bool has_network = true; // sequences may use several hosts
};
Sequence make_sequence(uint64_t seed, const Scope &scope);
// Describes the sequence in words, with a line for each rank.
std::string text(const Sequence &sequence);

inline constexpr int max_ranks = 6;
inline constexpr size_t max_calls = 16;

} // namespace sequences
