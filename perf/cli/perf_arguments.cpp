// Implements perf_arguments.hpp: parsers that accept a text and store the value that the text
// names, the options of qccl-perf, and the checks of their combinations.
#include "perf/cli/perf_arguments.hpp"

#include "base/text.hpp"
#include "coll/algorithm.hpp"
#include "device/device.hpp"
#include "perf/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace qccl::perf {

// ---- Options that select calls

static Names with_all(Names names) {
    names.push_back("all");
    return names;
}

Take take_collective(Collective &collective) {
    return [&collective](const std::string &called) -> Done {
        const auto name = parse_collective(called);
        const auto found = name ? name : collective_called(called);
        if (!found)
            return refuse("'%.40s' is none of %s", called.c_str(),
                          listed({collective_names.begin(), collective_names.end()}).c_str());
        collective = *found;
        return {};
    };
}

Take take_algorithm(Algorithm &algorithm) {
    return [&algorithm](const std::string &text) -> Done {
        QCCL_TRY(algorithm, parse_algorithm(text));
        return {};
    };
}

Take take_ops(std::vector<RedOp> &ops) {
    return [&ops](const std::string &text) -> Done {
        auto op = parse_op(text);
        if (text == name(RedOp::pre_mul_sum)) op = RedOp::pre_mul_sum;
        if (!op && text != "all") {
            Names possible(op_names.begin(), op_names.end());
            possible.push_back(name(RedOp::pre_mul_sum));
            return no_choice("operation", text, with_all(std::move(possible)));
        }
        if (op)
            ops = {*op};
        else
            ops = {all_ops.begin(), all_ops.end()};
        return {};
    };
}

Take take_types(std::optional<std::vector<DataType>> &types) {
    return [&types](const std::string &text) -> Done {
        const auto type = parse_type(text);
        if (!type && text != "all") return no_choice("type", text, with_all(names_of(type_table)));
        std::vector<DataType> all;
        for (const TypeInfo &row : type_table) all.push_back(row.type);
        types = type ? std::vector{*type} : all;
        return {};
    };
}

Take take_root(std::optional<uint32_t> &root, uint32_t most_ranks) {
    return [&root, most_ranks](const std::string &text) -> Done {
        const auto number = parse_count(text);
        if (text != "all" && (!number || *number >= most_ranks))
            return refuse("'%.40s' is no rank, and not all", text.c_str());
        root = number ? std::optional(static_cast<uint32_t>(*number)) : std::nullopt;
        return {};
    };
}

Take take_codecs(std::vector<Codec> &codecs) {
    return [&codecs](const std::string &text) -> Done {
        QCCL_TRY(codecs, parse_codec_list(text));
        if (codecs.empty()) return refuse("names no codec");
        return {};
    };
}

Take take_algorithms(std::vector<std::string> &algorithms) {
    return [&algorithms](const std::string &text) -> Done {
        std::vector<std::string> specs;
        for (const std::string &item : split_specs(text)) {
            specs.push_back(item);
            if (item == "auto") continue;
            QCCL_TRY(const Algorithm algorithm, parse_algorithm(item, "algorithm", {"auto"}));
            specs.back() = spec(algorithm);
        }
        algorithms = specs;
        return {};
    };
}

void add_sizes(CLI::App &app, const SizeOptions &to) {
    static constexpr auto *group = "Sizes";
    add_option(app, group, "-b,--minbytes", "smallest size (32M)", take_bytes(to.min_bytes));
    add_option(app, group, "-e,--maxbytes", "largest size (32M)", take_bytes(to.max_bytes));
    add_option(app, group, "-i,--stepbytes", "added to reach the next size (1M)",
               take_bytes(to.step_bytes));
    add_option(app, group, "-f,--stepfactor", "or multiplied by, if above 1 (1)",
               take_count(to.step_factor, 1, 1U << 30));
}

// ---- The command line of qccl-perf

static constexpr uint32_t most_ranks = 4096;
static constexpr uint32_t most_grouped = 65536;

struct Refused {
    const char *flags;
    const char *reason;
};
// Options of nccl-tests 2.19 that have no meaning here.
static constexpr Refused refused_options[] = {
    {"-x,--cta_policy", "how many thread blocks (CTAs) compute on a GPU is the library's choice"},
    {"-V,--device_cta_count",
     "how many thread blocks (CTAs) compute on a GPU is the library's choice"},
};
// Options whose default is 0 and whose other values have no meaning here.
static constexpr Refused zero_options[] = {
    {"-G,--cudagraph", "calls are measured by themselves, outside CUDA graphs"},
    {"-D,--device_implementation", "there is no device-side implementation"},
};

static Take take_devices(std::vector<std::string> &devices) {
    return [&devices](const std::string &text) -> Done {
        devices.clear();
        for (size_t at = 0; at <= text.size();) {
            const size_t end = std::min(text.find(',', at), text.size());
            devices.push_back(text.substr(at, end - at));
            QCCL_TRY(check_device("device", devices.back()));
            at = end + 1;
        }
        return {};
    };
}

static Take take_only(const char *only, const char *reason) {
    return [only, reason](const std::string &text) -> Done {
        if (text != only)
            return refuse("'%.40s' is not possible, only %s: %s", text.c_str(), only, reason);
        return {};
    };
}

void add_ranks(CLI::App &app, PerfArguments &to, const Started &started) {
    static constexpr auto *group = "Ranks";
    const auto take_threads = [&to](const std::string &text) -> Done {
        QCCL_TRY(take_count(to.ranks, 1, most_ranks)(text));
        to.launch = Launch::threads;
        return {};
    };
    to.launch = started.launch(false);
    const auto refuse_if_started = [&to, &started](const Take &take) -> Take {
        if (to.launch == Launch::processes) return take;
        const bool is_mpi = to.launch == Launch::mpi;
        return [is_mpi, &started](const std::string &) -> Done {
            if (is_mpi) return refuse("is not possible under mpirun, which has started the ranks");
            return refuse("is not possible where %s are set: the ranks have been started",
                          started.by_environment.c_str());
        };
    };
    CLI::Option *const processes = add_option(
        app, group, "--ranks", "N ranks, each a process (2 if nothing else says how many)",
        refuse_if_started(take_count(to.ranks, 1, most_ranks)));
    add_option(app, group, "-t,--nthreads,--threads", "N ranks, each a thread of one process",
               refuse_if_started(take_threads))
        ->excludes(processes);
}

static void add_where(CLI::App &app, PerfArguments &to, const Started &started) {
    static constexpr auto *group = "Ranks";
    add_option(app, group, "-g,--ngpus", "only 1",
               take_only("1", "a thread drives one rank; -t N or --ranks N give N ranks"));
    add_option(app, group, "--device", "host, or GPUs as in cuda:0,cuda:1; rank r has item r mod n",
               take_devices(to.devices));
    const auto take_baseline = [&to, &started](const std::string &text) -> Done {
        if (text != "mpi") return no_choice("baseline", text, {"mpi"});
        if (!started.by_mpi)
            return refuse("mpi needs MPI's ranks: start it as mpirun -n N qccl-perf ...");
        to.baseline = text;
        to.launch = started.launch(true);
        return {};
    };
    add_option(app, group, "--baseline", "mpi: measured in turns with QCCL, under mpirun",
               take_baseline);
}

static constexpr const char *skew_names[] = {"equal", "linear", "one", "random"};

const char *name(Skew skew) { return skew_names[static_cast<size_t>(skew)]; }

static Take take_skew(std::optional<Skew> &skew) {
    return [&skew](const std::string &text) -> Done {
        const auto *const found = std::ranges::find(skew_names, text);
        if (found == std::end(skew_names))
            return no_choice("skew", text, {std::begin(skew_names), std::end(skew_names)});
        skew = static_cast<Skew>(found - skew_names);
        return {};
    };
}

static void add_calls(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Calls";
    static constexpr uint64_t most = 1U << 30;
    add_option(app, group, "-o,--op", "sum, prod, min, max, avg, mulsum or all (sum)",
               take_ops(to.ops));
    add_option(app, group, "-d,--datatype", "type of the values, or all (float)",
               take_types(to.types));
    add_option(app, group, "-r,--root", "root of collectives that have one, or all (0)",
               take_root(to.root, most_ranks));
    add_option(app, group, "-n,--iters", "timed iterations (20)",
               take_count(to.iterations, 1, most));
    add_option(app, group, "-w,--warmup_iters", "untimed ones before (1)",
               take_count(to.warmup_iterations, 0, most));
    const auto take_aggregated = [&to](const std::string &text) -> Done {
        to.aggregated = 0;
        return take_count(*to.aggregated, 1, most)(text);
    };
    add_option(app, group, "-m,--agg_iters", "calls in one iteration (1, more for small sizes)",
               take_aggregated);
    add_option(app, group, "--group",
               "N calls of the size in one group, on parts of the buffers; one row has them all",
               take_count(to.group, 1, most_grouped));
    add_option(app, group, "--skew",
               "counts of v-forms: equal, linear, one (rank has everything) or random (linear)",
               take_skew(to.skew));
    add_option(app, group, "-N,--run_cycles", "sweeps; 0: for ever (1)",
               take_count(to.cycles, 0, most));
    add_option(app, group, "-c,--check", "calls whose result is checked (1)",
               take_count(to.checks, 0, most));
    const auto take_blocking = [&to](const std::string &text) -> Done {
        uint64_t number = 0;
        QCCL_TRY(read_count(text, 0, 3, number));
        // 3 asks nccl-tests to leave the barrier out of the time, which is always so here
        to.blocking = number == 3 ? Blocking::with_barrier : static_cast<Blocking>(number);
        return {};
    };
    add_option(app, group, "-z,--blocking", "1, 3: barrier between iterations; 2: as 0 (0)",
               take_blocking);
    add_option(app, group, "-T,--timeout", "seconds to wait for a rank that does not come",
               take_count(to.timeout_s, 0, most));
    add_option(app, group, "-u,--unalign", "elements by which buffers are off their alignment (0)",
               take_count(to.unaligned_elements, 0, 1U << 20));
}

static void add_compression(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Compression and data";
    const auto take_buffers = [&to](const std::string &text) -> Done {
        if (text != "shared" && text != "malloc")
            return no_choice("kind of buffer", text, {"shared", "malloc"});
        to.buffers = text == "malloc" ? Buffers::ordinary : Buffers::shareable;
        return {};
    };
    add_option(app, group, "--codec", "codecs, separated by commas (none)", take_codecs(to.codecs));
    add_option(app, group, "--algo", "auto or algorithms, separated by commas (auto)",
               take_algorithms(to.algorithms));
    add_option(app, group, "--lossless", "0: codecs by themselves, no lossless calls beside (1)",
               take_count(to.has_lossless_beside, 0, 1));
    add_option(app, group, "--input", "DIR/rank%r.npy: each rank's data (%r: its number)",
               take_text(to.input));
    add_option(app, group, "--seed", "of made data (1)",
               take_count(to.seed, 0, std::numeric_limits<uint64_t>::max()));
    add_option(app, group, "--buffers",
               "shared: from qcclMemAlloc; malloc: ordinary memory (shared)", take_buffers);
    const auto take_registration = [&to](const std::string &text) -> Done {
        return take_count(to.wants_registered.emplace(), 0, 1)(text);
    };
    add_option(app, group, "-R,--local_register",
               "1: buffers are registered, so that peers read them in place (1, 0 with malloc)",
               take_registration);
}

static void add_reports(CLI::App &app, PerfArguments &to) {
    static constexpr auto *group = "Reports";
    add_option(app, group, "-a,--average",
               "time of 0: rank 0, 1: mean, 2: fastest, 3: slowest rank (3)",
               take_count(to.average, 0, 3));
    add_option(app, group, "-C,--report_cputime", "1: CPU time instead of time (0)",
               take_count(to.reports_cpu_time, 0, 1));
    add_option(app, group, "-S,--report_timestamps", "1: date and time in each row (0)",
               take_count(to.reports_timestamps, 0, 1));
    add_option(app, group, "-M,--memory", "1: memory used (0)",
               take_count(to.reports_memory, 0, 1));
    add_option(app, group, "-I,--per_iter_timing", "1: columns about single iterations (0)",
               take_count(to.reports_iterations, 0, 1));
    add_option(app, group, "-K,--per_iter_skip", "iterations that those columns leave out (0)",
               take_count(to.skipped_iterations, 0, 1U << 30));
    add_option(app, group, "-J,--output_file", "JSON as nccl-tests writes it",
               take_text(to.nccl_json_file));
    add_option(app, group, "--json", "JSON with one row for each case; -: standard output",
               take_text(to.json_file));
}

static void add_leftovers(CLI::App &app) {
    static constexpr auto *group = "Accepted for the sake of nccl-tests' users";
    const auto take_either = [](const std::string &text) -> Done {
        if (text != "0" && text != "1") return refuse("'%.40s' is not 0 or 1", text.c_str());
        return {};
    };
    add_option(app, group, "-p,--parallel_init", "0 or 1: ranks always start in parallel",
               take_either);
    add_option(app, group, "-y,--stream_null", "0 or 1: each rank has a stream of its own",
               take_either);
    for (const Refused &row : zero_options)
        add_option(app, group, row.flags, "only 0", take_only("0", row.reason));
    for (const Refused &row : refused_options)
        add_option(app, group, row.flags, "refused, with the reason",
                   [&row](const std::string &) -> Done {
                       return refuse("is not possible: %s", row.reason);
                   })
            ->expected(0, 1); // without a value the option is refused for the same reason
}

// Refuses options for host buffers if a device is a GPU.
static Done check_gpus(const PerfArguments &to) {
    const std::string gpu = to.first_gpu();
    if (gpu.empty()) return {};
    if (!to.baseline.empty())
        return refuse("--baseline %s measures buffers of the host, and --device names %s",
                      to.baseline.c_str(), gpu.c_str());
    if (to.wants_registered == true)
        return refuse("--local_register 1 is for buffers of the host, and --device names %s",
                      gpu.c_str());
    if (to.buffers == Buffers::ordinary && to.is_all_gpus())
        return refuse("--buffers malloc is for buffers of the host, and --device names %s",
                      gpu.c_str());
    return {};
}

std::string PerfArguments::first_gpu() const {
    const auto found =
        std::ranges::find_if(devices, [](const std::string &name) { return name != "host"; });
    return found == devices.end() ? "" : *found;
}

std::vector<std::string> PerfArguments::devices_of_ranks() const {
    std::vector<std::string> dealt;
    for (uint32_t rank = 0; rank < ranks; rank++) dealt.push_back(device_of(rank));
    return dealt;
}

Done PerfArguments::check_devices() const {
    if (devices.size() <= ranks) return {};
    return refuse("--device names %zu devices for %u %s", devices.size(), ranks,
                  ranks == 1 ? "rank" : "ranks");
}

bool PerfArguments::is_all_gpus() const {
    return std::ranges::find(devices, "host") == devices.end();
}

Done check_sizes(const PerfArguments &to) {
    if (to.min_bytes > to.max_bytes)
        return refuse("--minbytes %llu is above --maxbytes %llu",
                      static_cast<unsigned long long>(to.min_bytes),
                      static_cast<unsigned long long>(to.max_bytes));
    if (to.step_factor <= 1 && to.step_bytes == 0)
        return refuse("--stepbytes 0 reaches no next size");
    if (to.min_bytes == 0 && to.step_factor > 1 && to.max_bytes > 0)
        return refuse("--minbytes 0 times --stepfactor reaches no next size");
    return {};
}

Done check_pattern(Pattern pattern, uint32_t ranks) {
    if (pattern != Pattern::hypercube || std::has_single_bit(ranks)) return {};
    return refuse("hypercube needs a power of two, and these are %u ranks", ranks);
}

Done keep_possible_ops(PerfArguments &to) {
    if (!reduces(to.collective)) to.ops = {RedOp::sum};
    std::erase_if(to.ops, [&](RedOp op) { return !takes_op(to.collective, op); });
    if (to.ops.empty()) return refuse("--op avg: %s does not have it", name(to.collective));
    return {};
}

static Done check_together(PerfArguments &to, bool names_ranks) {
    QCCL_TRY(check_gpus(to));
    const bool knows_ranks = to.launch == Launch::processes || to.launch == Launch::threads;
    if (knows_ranks && !names_ranks)
        to.ranks = std::max(to.ranks,
                            static_cast<uint32_t>(std::min<size_t>(to.devices.size(), most_ranks)));
    if (knows_ranks) QCCL_TRY(to.check_devices());
    QCCL_TRY(check_sizes(to));
    if (knows_ranks) QCCL_TRY(check_pattern(to.pattern, to.ranks));
    if (to.group > 0 && to.pattern == Pattern::hypercube)
        return refuse("--group %u: the rounds of hypercube follow one another, so they cannot be "
                      "one group",
                      to.group);
    if (to.skew && to.pattern != Pattern::v_form)
        return refuse("--skew %s: %s has no parts with counts of their own, as all_gather_v has",
                      name(*to.skew), name(to.kind()));
    if (knows_ranks && to.root && *to.root >= to.ranks)
        return refuse("--root %u is none of the %u ranks", *to.root, to.ranks);
    if (to.cycles == 0 && to.json_file == "-")
        return refuse("--json - is written when all is over, and --run_cycles 0 has no end; name a "
                      "file");
    if (to.skipped_iterations > 0 && !to.reports_iterations)
        return refuse("--per_iter_skip %u needs --per_iter_timing 1", to.skipped_iterations);
    if (const uint32_t fewest = to.iterations.value_or(to.default_iterations);
        to.skipped_iterations >= fewest)
        return refuse("--per_iter_skip %u leaves nothing of %u iterations", to.skipped_iterations,
                      fewest);
    if (to.registers() && to.buffers != Buffers::shareable)
        return refuse("--local_register 1 needs memory from qcclMemAlloc: --buffers shared");
    return keep_possible_ops(to);
}

std::variant<PerfArguments, Answer> parse_perf_arguments(const CallKind &kind,
                                                         const std::string &program,
                                                         std::vector<std::string> arguments,
                                                         const Started &started) {
    PerfArguments parsed;
    parsed.collective = kind.collective;
    parsed.pattern = kind.pattern;
    CLI::App app(
        std::string("Measures ") + name(kind) +
            " on this machine and checks its results; options are those of nccl-tests 2.19.",
        program);
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_ranks(app, parsed, started);
    add_where(app, parsed, started);
    add_sizes(app, {parsed.min_bytes, parsed.max_bytes, parsed.step_bytes, parsed.step_factor});
    add_calls(app, parsed);
    add_compression(app, parsed);
    add_reports(app, parsed);
    add_leftovers(app);
    complete_names(app, arguments);
    if (auto answer = read_command_line(app, "qccl-perf", std::move(arguments))) return *answer;
    parsed.names_sizes = app.count("-b") + app.count("-e") > 0;
    const bool names_ranks = app.count("--ranks") + app.count("-t") > 0;
    if (const Done done = check_together(parsed, names_ranks); !done)
        return refusal("qccl-perf", done.error().text);
    return parsed;
}

Result<double> parse_least_busbw(const std::string &text) {
    const auto value = parse_number<double>(text);
    if (value && std::isfinite(*value)) return *value;
    return refuse("NCCL_TESTS_MIN_BW=%.40s: expected a number of GB/s", text.c_str());
}

static std::string_view without_perf(std::string_view name) {
    if (name.ends_with("_perf")) name.remove_suffix(5);
    return name;
}

Done check_call_codec(const Codec &codec, const CallKind &kind, DataType type, RedOp op) {
    if (kind.pattern == Pattern::v_form && codec.guard != 0)
        return invalid_argument("%s has no guards", name(kind));
    return check_codec(codec, kind.collective, type, op);
}

// Underscores count nowhere.
static bool is_name(std::string_view given, std::string_view name) {
    const auto letters = [](std::string_view text) {
        std::string plain(text);
        std::erase(plain, '_');
        return plain;
    };
    return letters(without_perf(given)) == letters(name);
}

std::optional<Collective> collective_called(std::string_view name) {
    for (const Collective collective : value_collectives)
        if (is_name(name, qccl::name(collective))) return collective;
    return std::nullopt;
}

static constexpr std::pair<const char *, Pattern> patterns[] = {{"sendrecv", Pattern::sendrecv},
                                                                {"hypercube", Pattern::hypercube}};

Collective CallKind::called() const {
    if (pattern != Pattern::v_form) return collective;
    const auto *const form = std::ranges::find(v_forms, collective, &VForm::of);
    return form == v_forms.end() ? collective : form->collective;
}

const char *name(const CallKind &kind) {
    for (const auto &[name, pattern] : patterns)
        if (kind.pattern == pattern) return name;
    return qccl::name(kind.called());
}

static std::optional<CallKind> v_form_called(std::string_view name) {
    for (const VForm &form : v_forms)
        if (is_name(name, form.name)) return CallKind{form.of, Pattern::v_form};
    return std::nullopt;
}

std::optional<CallKind> kind_called(std::string_view name) {
    for (const auto &[called, pattern] : patterns)
        if (is_name(name, called)) return CallKind{Collective::send, pattern};
    const auto collective = collective_called(name);
    return collective ? std::optional(CallKind{*collective}) : v_form_called(name);
}

Names kind_names() {
    Names names{value_collective_names.begin(), value_collective_names.end()};
    for (const VForm &form : v_forms) names.push_back(form.name);
    for (const auto &[name, pattern] : patterns) names.push_back(name);
    return names;
}

} // namespace qccl::perf
