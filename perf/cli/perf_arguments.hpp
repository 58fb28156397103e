// The command line of qccl-perf: the options of nccl-tests, each accepted or refused with the
// reason, and additional options such as --group, which measures groups of calls, and --skew, the
// counts of v-forms. The options that select calls (operations, types, codecs, algorithms, sizes)
// serve every command of qccl-perf and qccl-info that measures, simulates or explains calls. Starts
// nothing and prints nothing. Any thread.
#pragma once

#include "base/text.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "perf/cli/command_line.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace qccl::perf {

// ---- Options that select calls

// What a call is: a collective or its v-form, or a pattern of messages. The patterns are those of
// nccl-tests' sendrecv_perf and hypercube_perf: every rank sends to the next one and receives from
// the one before; or all ranks gather the inputs of all in log2(ranks) rounds, in which each
// exchanges what it has with one other rank.
enum class Pattern : uint8_t { collective, v_form, sendrecv, hypercube };
struct CallKind {
    Collective collective = Collective::all_reduce; // of patterns of messages: send
    Pattern pattern = Pattern::collective;

    bool operator==(const CallKind &) const = default;
    bool is_messages() const { return pattern >= Pattern::sendrecv; }
    // Returns the v-form if the call is one, else the collective.
    Collective called() const;
};
const char *name(const CallKind &kind);
// Recognizes the names by which users call what can be measured: "all_reduce", "allreduce",
// "all_reduce_perf", "send_recv".
std::optional<CallKind> kind_called(std::string_view name);
// Returns the names of all kinds.
Names kind_names();

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

// ---- The command line of qccl-perf

// How the counts of a v-form differ: not at all, in proportion to the number of the rank (from 1
// on), so that one rank has everything, or at random.
enum class Skew : uint8_t { equal, linear, one, random };
const char *name(Skew skew);

// Which rank's time a row shows.
enum class Average : int32_t { rank_0 = 0, mean = 1, fastest = 2, slowest = 3 };
enum class Blocking : int32_t { none = 0, with_barrier = 1, without_barrier = 2 };
enum class Launch : uint8_t { processes, threads, mpi, environment };
enum class Buffers : uint8_t { shareable, ordinary };

// Whether this process is one of several ranks that a launcher or a user has started, and how this
// is known.
struct Started {
    bool by_mpi = false;        // the MPI module can reach the other ranks
    std::string by_environment; // the variables that give each rank its number; empty: none are set

    // Ranks under MPI communicate through MPI. If the launcher may serve several MPIs or none, they
    // do so only if the user asks for MPI.
    Launch launch(bool wants_mpi) const {
        if (by_mpi && (wants_mpi || by_environment.empty())) return Launch::mpi;
        return by_environment.empty() ? Launch::processes : Launch::environment;
    }
};

// The defaults are those of nccl-tests, except `average`, and except `ranks`, because one rank has
// no peer.
struct PerfArguments {
    Collective collective = Collective::all_reduce;
    Pattern pattern = Pattern::collective;
    uint32_t group = 0;       // calls that one group makes; 0: calls are made by themselves
    std::optional<Skew> skew; // of a v-form; nothing: linear

    uint64_t min_bytes = uint64_t{32} << 20;
    uint64_t max_bytes = uint64_t{32} << 20;
    uint64_t step_bytes = uint64_t{1} << 20;
    uint64_t step_factor = 1;
    bool names_sizes = false; // -b or -e was given

    static constexpr uint32_t default_iterations = 20;
    std::optional<uint32_t> iterations; // nothing: the default, or more for small sizes
    uint32_t warmup_iterations = 1;
    // Calls per iteration; nothing: 1, or more where reading the clock would distort the time.
    std::optional<uint32_t> aggregated;
    uint32_t cycles = 1; // 0: for ever
    uint32_t checks = 1;
    std::vector<RedOp> ops{RedOp::sum};
    std::optional<std::vector<DataType>> types; // nothing: float, or the input files' type
    std::optional<uint32_t> root = 0;           // nothing: each rank in turn
    Blocking blocking = Blocking::none;
    double timeout_s = 0; // 0: the library's default
    bool reports_cpu_time = false;
    bool reports_timestamps = false;
    bool reports_memory = false;
    bool reports_iterations = false;
    uint32_t skipped_iterations = 0; // first iterations, which those reports leave out
    Average average = Average::slowest;
    uint32_t unaligned_elements = 0;
    std::string nccl_json_file;

    Launch launch = Launch::processes;
    uint32_t ranks = 2;
    std::vector<std::string> devices{"host"}; // rank r gets item r mod n
    std::vector<Codec> codecs{Codec{}};
    std::vector<std::string> algorithms{"auto"};
    bool has_lossless_beside = true; // lossless calls are measured too, for comparison
    std::string input;               // pattern of .npy files; empty: generated data
    uint64_t seed = 1;
    std::string json_file; // "-": standard output
    std::string baseline;  // "mpi" or empty
    Buffers buffers = Buffers::shareable;
    std::optional<bool> wants_registered; // nothing: registered if possible

    // GB/s. The run fails if the average bus bandwidth is below nine tenths of this.
    std::optional<double> least_busbw;

    CallKind kind() const { return {collective, pattern}; }
    const std::string &device_of(uint32_t rank) const { return devices[rank % devices.size()]; }
    std::vector<std::string> devices_of_ranks() const;
    // Fails if there are more devices than ranks.
    Done check_devices() const;
    // Returns the first device that is not the host; empty: there is none.
    std::string first_gpu() const;
    bool is_all_gpus() const;
    // Returns whether buffers on the host are registered.
    bool registers() const { return wants_registered.value_or(buffers == Buffers::shareable); }
};

// `arguments` are the words after the name of the kind. `started` says whether this process has
// been started as one of several ranks. Returns the arguments, or the text and exit status to end
// with.
std::variant<PerfArguments, Answer> parse_perf_arguments(const CallKind &kind,
                                                         const std::string &program,
                                                         std::vector<std::string> arguments,
                                                         const Started &started);

// Adds the options that define the ranks, and sets `to.launch` by `started`, which must outlive the
// parsing of the command line.
void add_ranks(CLI::App &app, PerfArguments &to, const Started &started);

// Fails if the sweep over sizes would not end.
Done check_sizes(const PerfArguments &arguments);
// Fails if the codec cannot encode such calls.
Done check_call_codec(const Codec &codec, const CallKind &kind, DataType type, RedOp op);
// Fails if the pattern is impossible with this number of ranks.
Done check_pattern(Pattern pattern, uint32_t ranks);
// Leaves out the operations that the collective does not have. Fails if none is left.
Done keep_possible_ops(PerfArguments &arguments);

// Parses NCCL_TESTS_MIN_BW: a number of GB/s.
Result<double> parse_least_busbw(const std::string &text);

// Recognizes the names by which users call a collective: "all_reduce", "allreduce",
// "all_reduce_perf".
std::optional<Collective> collective_called(std::string_view name);

} // namespace qccl::perf
