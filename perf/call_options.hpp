// Options that select calls: operations, types, codecs, algorithms, sizes. Used by the commands of
// qccl-perf and qccl-info that measure, simulate or explain calls. Starts nothing and prints
// nothing.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/command_line.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace qccl::perf {

// Each function returns a parser that stores the named value in its argument. The argument must
// outlive the parsing of the command line.
Take take_collective(Collective &collective); // also accepts the names of nccl-tests
Take take_algorithm(Algorithm &algorithm);
Take take_ops(std::vector<RedOp> &ops);
Take take_types(std::optional<std::vector<DataType>> &types);
Take take_root(std::optional<uint32_t> &root, uint32_t most_ranks); // stores nothing for "all"
Take take_codecs(std::vector<Codec> &codecs);
// Accepts "auto" or specs, and stores specs in their shortest form.
Take take_algorithms(std::vector<std::string> &algorithms);

// Where the values of -b, -e, -i and -f are stored.
struct SizeOptions {
    uint64_t &min_bytes, &max_bytes, &step_bytes, &step_factor;
};
void add_sizes(CLI::App &app, const SizeOptions &to);

} // namespace qccl::perf
