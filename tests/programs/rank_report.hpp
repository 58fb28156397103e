// What a rank of a random program notes for the judge, in memory that the two share. Used by the
// programs that play ranks; one thread at a time.
#pragma once

#include "random_program.hpp"

#include <qccl/qccl.h>

namespace stress {

enum class Phase : uint8_t {
    steps,
    broken,   // the step that breaks a rule
    further,  // one more call on each communicator
    finalize, // of each communicator
    destroy
};
const char *name(Phase phase);

struct CommReport {
    qcclResult_t error; // the first one
    Phase at;
    char sentence[360];
};
struct RankReport {
    volatile long program; // that the rank plays, or in which it met the first error
    volatile int step;
    volatile long beat; // grows while the rank goes on
    bool has_left;      // the rank has returned from the program, and plays no other one
    Phase phase;        // of the calls that follow
    bool is_wrong;      // first_wrong says what is not as it should be
    char first_wrong[300];
    double longest_s;     // of all calls
    qcclResult_t refusal; // what the call that had to be refused returned
    CommReport comms[max_comms];

    // Notes the result of a call on the communicator. `asked`: what has the error's sentence; NULL:
    // the thread.
    void note(int comm, qcclResult_t result, double seconds, qcclComm_t asked = nullptr);
    void note_wrong(const std::string &what);
    bool has_error() const;
    void begin_program(long number);
};

} // namespace stress
