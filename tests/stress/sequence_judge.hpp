// Checks the recorded results of a sequence of calls, in which one rank may disagree, against the
// rules for mismatches. Used by the tests that play random sequences; does not block.
#pragma once

#include "call_sequence.hpp"
#include "sequence_rank.hpp"

#include <set>
#include <string>

namespace stress {

// The rules, named by how they are broken. "The further call" is the one after the call that
// disagreed. Ranks whose communicator a peer may legitimately leave are exempt (Judge).
enum class Breach : uint8_t {
    different_bytes, // two ranks succeeded up to the further call, with different results
    silent,          // a rank succeeded up to the further call
    shrunk_unaware,  // the same, if that was a shrink of a communicator that had failed elsewhere
    never_told,      // a rank succeeded in every call, including its last one
    unnamed,         // no rank got qcclMismatch
    sentences,       // ranks got qcclMismatch with different sentences
    wrong_error,     // a rank's first error is not qcclMismatch, or qcclPeerLost without a cause
    agreed_failed,   // a call failed on which all ranks agreed
    wrong_data,      // an agreed call succeeded with wrong data, or wrote beyond a buffer
    late_repair,     // a shrink by a rank that knew of the disagreement took too long (see `late`)
    late,            // another call took longer than peer_timeout plus a second
    stuck,           // the ranks did not finish, or one of them crashed
};
inline constexpr int breaches = 12;
const char *name(Breach breach);
// Returns whether load on the machine may be the cause.
bool may_be_load(Breach breach);

struct Judgement {
    std::set<Breach> breaches;
    Kind further = Kind::destroy; // the further call of the ranks that agree
    double longest_s = 0;         // of all calls
};
// Returns the broken rules. `has_ended`: false if the ranks had to be killed.
Judgement judge(const Sequence &sequence, const SequenceStage &stage, bool has_ended,
                double peer_timeout_s);
// Returns the results of each rank's calls, a line for each rank, and each error's sentence once.
std::string results_text(const Sequence &sequence, const SequenceStage &stage);

} // namespace stress
