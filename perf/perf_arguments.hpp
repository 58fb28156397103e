// The command line of qccl-perf: nccl-tests' options, each accepted or refused by name with the
// reason, and ours. Starts nothing.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "perf/command_line.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace qccl::perf {

// Whose time a row shows.
enum class Average : int32_t { rank_0 = 0, mean = 1, fastest = 2, slowest = 3 };
enum class Blocking : int32_t { none = 0, with_barrier = 1, without_barrier = 2 };
enum class Launch : uint8_t { processes, threads, mpi, environment };
enum class Buffers : uint8_t { shareable, ordinary };

// Whether this process is one of several ranks that somebody has started, and by what it is known.
struct Started {
    bool by_mpi = false;        // MPI's module can reach the others
    std::string by_environment; // the variables that say who is who; empty: none do

    // MPI's ranks are reached by MPI, but under a launcher that may serve several MPIs, or none,
    // only where MPI is asked for.
    Launch launch(bool wants_mpi) const {
        if (by_mpi && (wants_mpi || by_environment.empty())) return Launch::mpi;
        return by_environment.empty() ? Launch::processes : Launch::environment;
    }
};

// nccl-tests' defaults, but for `average`, and `ranks`: one rank has nobody to talk to.
struct PerfArguments {
    Collective collective = Collective::all_reduce;

    uint64_t min_bytes = uint64_t{32} << 20;
    uint64_t max_bytes = uint64_t{32} << 20;
    uint64_t step_bytes = uint64_t{1} << 20;
    uint64_t step_factor = 1;
    bool names_sizes = false; // -b or -e was given

    static constexpr uint32_t default_iterations = 20;
    std::optional<uint32_t> iterations; // nothing: at least the default, more for small sizes
    uint32_t warmup_iterations = 1;
    // Calls in an iteration; nothing: 1, or more where a look at the clock would count.
    std::optional<uint32_t> aggregated;
    uint32_t cycles = 1; // 0: for ever
    uint32_t checks = 1;
    std::vector<RedOp> ops{RedOp::sum};
    std::optional<std::vector<DataType>> types; // nothing: float, or the input files' type
    std::optional<uint32_t> root = 0;           // nothing: every rank in turn
    Blocking blocking = Blocking::none;
    double timeout_s = 0; // 0: the library's
    bool reports_cpu_time = false;
    bool reports_timestamps = false;
    bool reports_memory = false;
    bool reports_iterations = false;
    uint32_t skipped_iterations = 0; // the first ones, which those reports leave out
    Average average = Average::slowest;
    uint32_t unaligned_elements = 0;
    std::string nccl_json_file;

    Launch launch = Launch::processes;
    uint32_t ranks = 2;
    std::vector<std::string> devices{"host"}; // dealt out to the ranks
    std::vector<Codec> codecs{Codec{}};
    std::vector<std::string> algorithms{"auto"};
    bool has_lossless_beside = true; // codecs are compared with lossless calls
    std::string input;               // pattern of .npy files; empty: made data
    uint64_t seed = 1;
    std::string json_file; // "-": standard output
    std::string baseline;  // "mpi" or empty
    Buffers buffers = Buffers::shareable;
    std::optional<bool> wants_registered; // nothing: where they can be

    // GB/s. The run fails where the average bus bandwidth is less than nine tenths of it.
    std::optional<double> least_busbw;

    const std::string &device_of(uint32_t rank) const { return devices[rank % devices.size()]; }
    std::vector<std::string> devices_of_ranks() const;
    // Whether each has a rank.
    Done check_devices() const;
    // The first device that is not the host; empty: there is none.
    std::string first_gpu() const;
    bool is_all_gpus() const;
    // Whether buffers on the host are.
    bool registers() const { return wants_registered.value_or(buffers == Buffers::shareable); }
};

// `arguments` are those behind the collective's name. `started` says who has started this process
// among others.
std::variant<PerfArguments, Answer> parse_perf_arguments(Collective collective,
                                                         const std::string &program,
                                                         std::vector<std::string> arguments,
                                                         const Started &started);

// Adds the options that say which ranks there are, and takes over who has started this process.
// `started` stays where it is until the command line has been read.
void add_ranks(CLI::App &app, PerfArguments &to, const Started &started);

// Whether the sweep over sizes has an end.
Done check_sizes(const PerfArguments &arguments);

// NCCL_TESTS_MIN_BW: a number of GB/s.
Result<double> parse_least_busbw(const std::string &text);

// "all_reduce", "allreduce", "all_reduce_perf": what a user may call a collective.
std::optional<Collective> collective_called(std::string_view name);

} // namespace qccl::perf
