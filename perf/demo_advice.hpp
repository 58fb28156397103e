// The end of the demonstration: which codec its data would want if every rank were on a host of its
// own. Inside one machine memory is the bound, so that compression cannot show there what it is
// for.
#pragma once

#include "perf/datagen.hpp"
#include "perf/operation.hpp"

namespace qccl::perf {

// Prints a row for each of three networks, and the setting to export. One rank calls it; nothing is
// sent.
void print_network_advice(const Operation &operation, const Source &data);

} // namespace qccl::perf
