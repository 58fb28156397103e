// The handles of states (qcclStateCreate). Calls look up here the state that their config names,
// and check that it is one of theirs. Any thread may call; nothing blocks.
#pragma once

#include "base/result.hpp"
#include "comm/call_programs.hpp"
#include "comm/comm.hpp"
#include "engine/run/feedback_state.hpp"

#include <qccl/qccl.h>

namespace qccl {

struct CallArguments;

// Returns the state, which lives at least as long as the reference.
Result<StateRef> take_state(qcclState_t handle);

// Refuses by name a state that does not fit the call (invalid_argument). Null fits every call.
Done check_state(const Comm &comm, const CallArguments &given, const ProgramKey &key,
                 const FeedbackState *state);

// Refuses by name a state that keeps another momentum than the codec of its call has, or none
// (invalid_argument). A call without a state has no momentum, and a lossless one that of the state.
Done check_momentum(const Codec &codec, const FeedbackState *state);

} // namespace qccl
