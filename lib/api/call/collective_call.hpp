// The way from the arguments of a collective call to its program. The C functions of collectives
// and of prepared calls use it, on the thread that is inside the communicator. run_call blocks as
// the call does; nothing else here waits for other ranks.
#pragma once

#include "api/call/entry.hpp"
#include "api/call/v_forms.hpp"
#include "base/exception_boundary.hpp"
#include "base/result.hpp"
#include "base/types.hpp"
#include "comm/comm.hpp"

#include <optional>
#include <utility>

#include <qccl/qccl.h>

namespace qccl {

// The arguments of a call as C passes them.
struct CallArguments {
    Collective collective; // or the v-form
    const void *send = nullptr;
    void *recv = nullptr;
    const char *count_name = "count"; // as the header calls it
    size_t count = 0;
    qcclDataType_t type = qcclFloat32;
    qcclRedOp_t op = qcclSum;
    int root = 0;
    qcclStream_t stream = nullptr;
    const qcclCollConfig_t *config = nullptr;
    const PartArguments *parts = nullptr; // of a v-form; null: it is none
    bool is_lossless = false;             // also if the communicator has a codec; config names none
};

// A call whose arguments are right.
struct ReadyCall {
    ProgramRef program;
    Request request;
};

// Finds where calls with this `stream` run. The error (invalid_argument, invalid_usage) names it.
Result<CallStream> take_call_stream(const Comm &comm, qcclStream_t stream);
// Checks that the buffer lies in memory of the communicator's device, if that is a GPU.
Done check_place(const Comm &comm, const Buffer &buffer);
// Checks the config, for a call whose program is not needed yet.
Done check_config(Comm &comm, const CallArguments &given);
// Checks all arguments but the stream. The errors are those of the C functions; none fails the
// communicator unless it is no refusal.
Result<ReadyCall> make_ready(Comm &comm, const CallArguments &given);
// The same for a call that may repeat an earlier one, whose program it then has.
Result<ReadyCall> find_ready(Comm &comm, const CallArguments &given);
// A call without a config that repeats an earlier one, so that nothing is left to check. Small
// calls feel what other ways cost.
struct RepeatedCall {
    Comm &comm;
    const CachedCall &before;
    const void *send;
    void *recv;

    Done run() const;
    bool can_run_at_once() const { return comm.can_run_at_once(*before.program); }
};
// Returns nothing if the call is none, or not known to be one. `given` blocks, and the communicator
// has no GPU.
std::optional<RepeatedCall> find_repeated(Comm &comm, const CallArguments &given);
// Runs the call, or enqueues it. Calls that repeat an earlier one skip the checks of all arguments
// but the buffers and the stream.
Done run_call(Comm &comm, const CallArguments &given);

// Runs body, a Done(), which is a call of `collective` or a part of one. An error that is no
// refusal fails the communicator.
template <class Body> Done run_or_abandon(Comm &comm, Collective collective, Body &&body) {
    const Done done = exception_boundary(std::forward<Body>(body));
    if (!done && !is_refusal(done.error())) [[unlikely]]
        return comm.abandon(collective, done.error());
    return done;
}

} // namespace qccl
