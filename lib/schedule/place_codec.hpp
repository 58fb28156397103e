// Places the codec in an author's schedule: a value is encoded once before it is sent, a received
// value is decoded where it is first needed, and a value that is passed on travels as it came. The
// result does not depend on the codec. The compiler of programs and the planner use it. A pure
// function; any thread.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// Returns the placed schedule. Once a value has been encoded, every later step of this rank reads
// what its bytes decode to, so that no rank keeps a better copy than it gave away. For the same
// reason, copying a value that is sent later encodes it at once. The first write of an accumulator
// becomes a copy or a decode. The error (invalid_argument) refuses a schedule that needs more own
// wire slots at a time than `outbox`, reads a slot that was never written, finishes a value that
// has already been sent, passes on a value in another tier than it came in, or is already placed.
Result<Schedule> place_codec(const Schedule &author);

} // namespace qccl
