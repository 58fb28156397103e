// The end of the demonstration: says which codec suits its data if every rank is on a host of its
// own. Inside one machine memory is the bound, so compression shows no gain there.
#pragma once

#include "perf/datagen.hpp"
#include "perf/operation.hpp"

namespace qccl::perf {

// Prints a row for each of three networks, and the setting to export. Only one rank calls it; it
// does not communicate.
void print_network_advice(const Operation &operation, const Source &data);

} // namespace qccl::perf
