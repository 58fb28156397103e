// Notes about inputs and results that are not finite numbers, which explain why a row has no error.
// A note is an empty text if there is nothing to report. Used by qccl-perf's reports and the
// demonstration.
#pragma once

#include "perf/rank_group.hpp"
#include "perf/datagen.hpp"
#include "perf/row.hpp"

#include <string>

namespace qccl::perf {

// A note on the first `count` values of every rank's input. All ranks call this together and get
// the same note.
Result<std::string> non_finite_note(RankGroup &rank_group, const Source &source, DataType type,
                                    uint64_t count);

std::string overflow_note(const Row &row);

} // namespace qccl::perf
