// What has to be said of inputs and results that are no finite numbers: why a row has no error.
// Nothing, an empty text, where there are none.
#pragma once

#include "perf/crew.hpp"
#include "perf/datagen.hpp"
#include "perf/row.hpp"

#include <string>

namespace qccl::perf {

// On the first `count` values of every rank's input. Every rank calls this and gets the same.
Result<std::string> non_finite_note(Crew &crew, const Source &source, DataType type,
                                    uint64_t count);

std::string overflow_note(const Row &row);

} // namespace qccl::perf
