// A small client of the wire that process managers such as MPICH's hydra hand to what they start
// (PMI version 1): lines of text, a question and an answer at a time. It carries one text from rank
// 0 to all others. Knows nothing of what the text says.
#pragma once

#include "base/deadline.hpp"
#include "base/result.hpp"

#include <string>

namespace qccl {

// Rank 0 gives the text, the others get it; every rank of the job has to come. Afterwards the wire
// is closed, as the manager demands of whoever has spoken and does not want to be taken for dead
// when it exits: it can be done once in a process.
Result<std::string> spread_through_manager(int wire, uint32_t rank, const std::string &text,
                                           TimePoint deadline);

} // namespace qccl
