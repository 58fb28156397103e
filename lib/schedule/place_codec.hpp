// Places the codec in an author's schedule: what is sent is encoded once, what comes is decoded
// where it is first needed, and what is passed on travels as it came. Knows no codec: the same
// placed schedule serves them all.
#pragma once

#include "base/result.hpp"
#include "schedule/schedule.hpp"

namespace qccl {

// Once a value has been encoded, every later step of this rank reads what its bytes decode to, so
// that no rank keeps a better copy than it gave away; a copy of a value that is sent later encodes
// it at once, for the same reason. The first write of an accumulator becomes a copy or a decode.
// Refuses a schedule that needs more wire slots of its own at a time than `outbox`, reads what was
// never written, finishes what has already been sent, or passes on in one tier what came in
// another.
Result<Schedule> place_codec(const Schedule &author);

} // namespace qccl
