// Calls that are collected and then made together, so that none of them waits for another one's
// turn: those between qcclGroupStart and qcclGroupEnd, and the two halves of a qcclSendRecv.
// Collectives of one communicator keep their order, and so do the messages of two ranks in one
// direction; all else goes on at the same time. A group belongs to one thread. run() blocks until
// the calls without a stream are done, and until channels exist for all messages.
#pragma once

#include "api/group/grouped_call.hpp"

#include <cstddef>
#include <optional>
#include <set>

namespace qccl {

class CallGroup {
public:
    // Returns the group that this thread has open, or null.
    static CallGroup *current();
    // Returns how many of the communicator's calls this thread's open group has.
    static size_t calls_of(qcclComm_t handle);
    // Groups may be nested; the outermost end makes the calls.
    static void open();
    static Done close();

    // Check the arguments and keep the call; of a call with layers one for each of them. After an
    // error the group makes no call.
    Done add(qcclComm_t handle, const CallArguments &given);
    Done add(qcclComm_t handle, const MessageArguments &given);
    // Both halves of a qcclSendRecv.
    Done add(qcclComm_t handle, const MessageArguments &to, const MessageArguments &from);
    // Returns the error of the first call that failed; its sentence names the call.
    Done run();

    // The same for a group of one call with layers, made by the thread that is inside `comm`. The
    // group may run more than once.
    Done add_inside(Comm &comm, qcclComm_t handle, const CallArguments &given);
    Done run_inside();

private:
    // Begins the caller's next call, and returns its first part.
    GroupedCall &begin_call(qcclComm_t handle, Collective collective, qcclStream_t stream);
    // Runs the checks of the latest call. If it is wrong, the group is refused.
    template <class Checks> Done check(Checks &&checks);
    // Fills the latest call, which is the first layer, and appends the others.
    Done add_layers(Comm &comm, const CallArguments &given);

    Done add_state(const FeedbackState *state);

    GroupedCalls kept_;
    size_t begun_ = 0;                       // the caller's calls
    std::set<const FeedbackState *> states_; // of the calls
    std::optional<Error> refused_;
    uint32_t depth_ = 0;
};

} // namespace qccl
