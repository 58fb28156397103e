// Random sequences of calls on one communicator, in which one rank makes one call that disagrees
// with those of the others. Collectives are plain, prepared, or several in a group; messages go to
// the next rank; splits, shrinks and duplicates make communicators that are used, too. A sequence
// follows from its seed alone, so that each rank and the judge can compute it by themselves. Used
// by the test program disagreements. Pure; any thread.
#pragma once

#include "world_setting.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace stress {

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

struct Sequence {
    uint64_t seed = 0;
    Setting setting;
    int colors = 1;        // in splits a rank's color is its number modulo `colors`
    bool enqueues = false; // collectives go to streams, and each is synchronized before the next
    Disagreement disagreement = Disagreement::none;
    int odd_rank = 0;
    std::vector<std::vector<Call>> calls; // by rank; only the last call is a qcclCommDestroy

    int ranks() const { return setting.ranks; }
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

inline constexpr size_t max_calls = 16;

} // namespace stress
