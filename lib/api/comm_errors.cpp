// Words the sentence of a communicator's failure.
#include "api/comm_errors.hpp"

#include "base/types.hpp"

#include <cinttypes>
#include <cstdio>

namespace qccl {

Error located(const Error &error, const CallRecord &call, uint32_t own_rank) {
    const bool is_own = error.rank == Error::no_rank;
    const bool has_call = call.collective != CallRecord::no_collective;
    const char *const what = has_call ? name(static_cast<Collective>(call.collective)) : "";
    char who[24] = "", number[32] = "";
    if (is_own) std::snprintf(who, sizeof who, "rank %" PRIu32 ": ", own_rank);
    if (call.number != 0) std::snprintf(number, sizeof number, ", call %" PRIu64, call.number);
    Error worded = Error::make(error.code, "%s%s%s%s%.180s", who, what, number,
                               has_call ? ": " : "", error.text);
    return worded.at_rank(is_own ? own_rank : error.rank).compared(error.expected, error.got);
}

} // namespace qccl
