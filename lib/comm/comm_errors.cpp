// Words the errors of a communicator, and turns the error of one call into the failure of the
// communicator.
#include "comm/comm_errors.hpp"

#include "comm/comm.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

namespace qccl {

Error located(const Error &error, const CallRecord &call, uint32_t own_rank) {
    const bool is_own = error.rank == Error::no_rank;
    // What is said of a message names its two ranks.
    const bool is_message =
        call.number == 0 && call.collective == static_cast<int32_t>(Collective::send);
    const bool has_call = call.collective != CallRecord::no_collective && !is_message;
    const char *const what = has_call ? name(static_cast<Collective>(call.collective)) : "";
    char who[24] = "", number[32] = "";
    if (is_own) std::snprintf(who, sizeof who, "rank %" PRIu32 ": ", own_rank);
    if (call.number != 0) std::snprintf(number, sizeof number, ", call %" PRIu64, call.number);
    Error worded = Error::make(error.code, "%s%s%s%s%.420s", who, what, number,
                               has_call ? ": " : "", error.text);
    return worded.at_rank(is_own ? own_rank : error.rank).compared(error.expected, error.got);
}

Error Comm::ended() const {
    if (const auto failure = this->failure()) return failure->error;
    return Error::make(Code::invalid_usage, "the communicator was destroyed before the call");
}

// The sentence is the same on all ranks, so it has of other ranks' codecs, and of this rank's, only
// what descriptors have room for.
void Comm::log_long_codec(const Error &error, const Program &program) const {
    if (error.code != Code::mismatch) return;
    const CallDescriptor descriptor = program.shape.descriptor();
    const std::string whole = spec(program.work.codec);
    if (whole.size() < sizeof descriptor.codec) return;
    if (!std::strstr(error.text, descriptor.codec)) return;
    parts_.log->warn("rank %" PRIu32 " calls %s with codec %s", team_.rank,
                     name(descriptor.collective), whole.c_str());
}

Error Comm::abandon(Collective collective, const Error &error) {
    return failed(error, {static_cast<int32_t>(collective), 0, 0});
}

Error Comm::failed(const Error &error, const CallRecord &call) {
    // A failure that another rank or thread found earlier takes precedence.
    if (!parts_.transport->failure()) fail(located(error, call, team_.rank));
    const bool is_first = !errors_.has_failed();
    errors_.fail(*parts_.transport->failure(), call);
    const RecordedError first = *errors_.failure();
    if (!is_first) return first.error;
    // All ranks learn of the failure; one of them warns. A channel's failure becomes that of the
    // communicator whose messages it carries.
    const char *const who =
        parts_.comm_config.name.empty() ? "the communicator" : parts_.comm_config.name.c_str();
    if (!parts_.is_channel && parts_.transport->claim_log())
        parts_.log->warn("%s has failed: %s", who, first.error.text);
    else
        parts_.log->info("%s has failed: %s", who, first.error.text);
    return first.error;
}

std::optional<RecordedError> Comm::failure() const {
    if (errors_.has_failed()) return errors_.failure();
    if (const auto failure = parts_.transport->failure()) return RecordedError{*failure, {}};
    return std::nullopt;
}

} // namespace qccl
