// Makes the calls of a group. Those of one communicator follow one another, and so do those on one
// stream and the messages of two ranks in one direction; all else goes on at the same time, in
// threads of their own where calls block.
#pragma once

#include "api/group/grouped_call.hpp"

namespace qccl {

// Blocks until the calls without a stream are done, and until channels exist for all messages.
// Returns the error of the first call that failed; its sentence names the call.
Done run_group(const GroupedCalls &group);

} // namespace qccl
