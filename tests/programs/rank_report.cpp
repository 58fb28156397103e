// Fills the reports of rank_report.hpp.
#include "rank_report.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace stress {

const char *name(Phase phase) {
    static constexpr const char *names[] = {"steps", "broken", "further", "finalize", "destroy"};
    return names[static_cast<size_t>(phase)];
}

void RankReport::note(int comm, qcclResult_t result, double seconds, qcclComm_t asked) {
    longest_s = std::max(longest_s, seconds);
    CommReport &own = comms[comm];
    if (result == qcclSuccess || own.error != qcclSuccess) return;
    own.error = result;
    own.at = phase;
    std::snprintf(own.sentence, sizeof own.sentence, "%s", qcclGetLastError(asked));
}

void RankReport::note_wrong(const std::string &what) {
    if (is_wrong) return;
    is_wrong = true;
    std::snprintf(first_wrong, sizeof first_wrong, "step %d: %s", static_cast<int>(step),
                  what.c_str());
}

bool RankReport::has_error() const {
    return std::any_of(std::begin(comms), std::end(comms),
                       [](const CommReport &comm) { return comm.error != qcclSuccess; });
}

void RankReport::begin_program(long number) {
    program = number;
    step = 0;
    phase = Phase::steps;
}

} // namespace stress
