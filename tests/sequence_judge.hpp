// What must hold of a sequence that has been played.
#pragma once

#include "call_sequence.hpp"
#include "sequence_rank.hpp"

#include <set>
#include <string>

namespace sequences {

// The rules, each by the name of what breaks it. "The further call" is the one after the call that
// disagreed; ranks whose communicator a peer may rightly leave behind are exempt (Judge).
enum class Breach : uint8_t {
    different_bytes, // two ranks had success up to the further call, with different results
    silent,          // a rank had success up to the further call
    shrunk_unaware, // likewise, where that was a shrink of a communicator that had failed elsewhere
    never_told,     // a rank had success in every call, its last one too
    unnamed,        // no rank got qcclMismatch
    sentences,      // ranks got qcclMismatch with different sentences
    wrong_error,    // a rank's first error is not qcclMismatch, or qcclPeerLost without a cause
    agreed_failed,  // a call that was not to fail failed
    wrong_data,     // an agreed call that succeeded left wrong data, or wrote beyond a buffer
    late_repair,    // a shrink by a rank that had been told of the disagreement lasted as long
    late,           // another call lasted longer than peer_timeout plus a second
    stuck,          // the ranks did not come to an end, or one of them crashed
};
inline constexpr int breaches = 12;
const char *name(Breach breach);
// Whether a machine that is busy with other things may be the cause.
bool may_be_load(Breach breach);

struct Verdict {
    std::set<Breach> breaches;
    Kind further = Kind::destroy; // the further call of the ranks that are not odd
    double longest_s = 0;         // of all calls
};
// `has_ended` is false where the ranks had to be killed.
Verdict judge(const Sequence &sequence, const Stage &stage, bool has_ended, double peer_timeout_s);
// What each rank's calls returned, a line for each rank, and each error's sentence once.
std::string results_text(const Sequence &sequence, const Stage &stage);

} // namespace sequences
