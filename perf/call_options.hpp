// Options that say which calls are meant, as qccl-perf takes them wherever it measures or simulates
// calls: operations, types, codecs, algorithms, sizes. Starts nothing and prints nothing.
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

// Each takes a text into what it names, which outlives the command line's reading.
Take take_collective(Collective &collective); // also as nccl-tests calls it
Take take_algorithm(Algorithm &algorithm);
Take take_ops(std::vector<RedOp> &ops);
Take take_types(std::optional<std::vector<DataType>> &types);
Take take_root(std::optional<uint32_t> &root, uint32_t most_ranks); // nothing: "all"
Take take_codecs(std::vector<Codec> &codecs);
// "auto" or specs, in their shortest form.
Take take_algorithms(std::vector<std::string> &algorithms);

// Where -b, -e, -i and -f go.
struct SizeOptions {
    uint64_t &min_bytes, &max_bytes, &step_bytes, &step_factor;
};
void add_sizes(CLI::App &app, const SizeOptions &to);

} // namespace qccl::perf
