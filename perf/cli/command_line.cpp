// Implements command_line.hpp on top of CLI11, with messages of its own: parses the options,
// combines topology, settings and calibration, and makes the planner's inputs.
#include "perf/cli/command_line.hpp"

#include "base/settings.hpp"
#include "base/text.hpp"
#include "device/allowed_tiers.hpp"
#include "engine/compile/translate.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "topology/formats/read_topology.hpp"
#include "topology/sources/calibration_source.hpp"
#include "transport/transport.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>
#include <thread>

#include <unistd.h>

namespace qccl::perf {

Answer refusal(const std::string &program, const std::string &sentence) {
    return {usage_error, program + ": " + sentence + "\n"};
}

int tell(const Answer &answer) {
    std::fputs(answer.text.c_str(), answer.status == EXIT_SUCCESS ? stdout : stderr);
    return answer.status;
}

Error refuse(const char *format, ...) {
    char text[sizeof(Error::text)];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return invalid_argument("%s", text);
}

// A refused value is reported by an exception, as CLI11 requires; its message begins with the
// option's names. If an option is given several times, the last value counts.
CLI::Option *add_option(CLI::App &app, const char *group, const std::string &flags,
                        const std::string &help, const Take &take) {
    CLI::Option *const option = app.add_option_function<std::string>(
        flags,
        [flags, take](const std::string &text) {
            const bool is_option = text.size() > 2 && text.starts_with("--");
            const Done done = is_option
                                  ? refuse("needs a value; '%.40s' is an option", text.c_str())
                                  : take(text);
            if (!done) throw CLI::ValidationError(flags, done.error().text);
        },
        help);
    // Like getopt. Positional arguments keep their own positions.
    if (flags.starts_with('-')) option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    return option->group(group)->type_name("");
}

Done read_count(const std::string &text, uint64_t least, uint64_t most, uint64_t &value) {
    const auto number = parse_count(text);
    if (!number || *number < least || *number > most)
        return refuse("'%.40s' is no number from %llu to %llu", text.c_str(),
                      static_cast<unsigned long long>(least),
                      static_cast<unsigned long long>(most));
    value = *number;
    return {};
}

Take take_bytes(uint64_t &value) {
    return [&value](const std::string &text) -> Done {
        const auto bytes = parse_bytes(text);
        if (!bytes) return refuse("'%.40s' is no size such as 4096, 64K, 32M or 1G", text.c_str());
        value = *bytes;
        return {};
    };
}

Take take_text(std::string &value) {
    return [&value](const std::string &text) -> Done {
        if (text.empty()) return refuse("is empty");
        value = text;
        return {};
    };
}

static void add_names(const CLI::App &app, std::vector<std::string> &names) {
    for (const CLI::Option *const option : app.get_options())
        for (const std::string &name : option->get_lnames()) names.push_back(name);
    for (const CLI::App *const chosen : app.get_subcommands()) add_names(*chosen, names);
}

// Returns the long names that begin with `begun`, only of options that also have a letter. These
// options are those of nccl-tests, whose getopt_long completes names.
static std::vector<std::string> names_begun(const CLI::App &app, const std::string &begun) {
    std::vector<std::string> names;
    for (const CLI::Option *const option : app.get_options())
        for (const std::string &name : option->get_lnames())
            if (!option->get_snames().empty() && name.starts_with(begun)) names.push_back(name);
    return names;
}

static std::string unknown_option(const CLI::App &app, const std::string &word) {
    const std::string flag = word.substr(0, word.find('='));
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    static constexpr size_t longest_name = 64; // a longer name is not taken for a misspelling
    const size_t most_edits = std::max<size_t>(name.size() / 3, 1);
    std::vector<std::string> known;
    add_names(app, known);
    if (const auto begun = names_begun(app, name);
        flag.starts_with("--") && !name.empty() && begun.size() > 1) {
        std::string all;
        for (const std::string &each : begun) all += (all.empty() ? "--" : ", --") + each;
        return flag + " is ambiguous: " + all;
    }
    std::optional<std::string_view> meant;
    if (flag.starts_with("--") && name.size() <= longest_name)
        meant = nearest(name, {known.begin(), known.end()}, most_edits);
    const std::string sentence = "unknown option " + flag;
    return meant ? sentence + "; did you mean --" + std::string(*meant) + "?"
                 : sentence + "; --help lists those that there are";
}

static std::string unknown_word(const CLI::App &app, const std::string &word) {
    std::vector<std::string> commands;
    for (const CLI::App *const command : app.get_subcommands(nullptr))
        commands.push_back(command->get_name());
    if (commands.empty() || !app.get_subcommands().empty()) return "'" + word + "' is not expected";
    return no_choice("the first argument", word, {commands.begin(), commands.end()}).text;
}

// Returns the reason in words that name what the user wrote, not what the parser expected.
static std::string reason(const CLI::App &app, const CLI::ParseError &error) {
    const std::vector<std::string> unknown = app.remaining(true);
    for (const std::string &word : unknown)
        if (word.size() > 1 && word.starts_with('-')) return unknown_option(app, word);
    if (dynamic_cast<const CLI::ExtrasError *>(&error) != nullptr && !unknown.empty())
        return unknown_word(app, unknown.front());
    std::string said = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch *>(&error) == nullptr) return said;
    return said.substr(0, said.find(':')) + " needs a value";
}

void complete_names(const CLI::App &app, std::vector<std::string> &words) {
    for (std::string &word : words) {
        if (!word.starts_with("--")) continue;
        const std::string begun = word.substr(2, word.find('=') - 2);
        if (begun.empty() || app.get_option_no_throw("--" + begun)) continue;
        const std::vector<std::string> meant = names_begun(app, begun);
        if (meant.size() == 1) word.replace(2, begun.size(), meant.front());
    }
}

std::optional<Answer> read_command_line(CLI::App &app, const std::string &program,
                                        std::vector<std::string> words) {
    std::reverse(words.begin(), words.end()); // CLI11 expects the words in reverse order
    try {
        app.parse(words);
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        std::ostringstream help, complaint;
        if (app.exit(error, help, complaint) == 0) return Answer{EXIT_SUCCESS, help.str()};
        return refusal(program, reason(app, error));
    }
}

// A node of a host, and how many of its ranks are still to be assigned.
struct Berth {
    RankLocation spot;
    uint64_t left = 0;
};

static Error refuse_hosts(const std::string &text) {
    return invalid_argument(
        "'%.40s' is no list of hosts: expected numbers of ranks, with commas between "
        "hosts, + between nodes of a host, / between racks, or 64x8 for 64 hosts of 8",
        text.c_str());
}

static Result<std::vector<Berth>> parse_berths(const std::string &text) {
    std::vector<Berth> berths;
    uint64_t ranks = 0;
    RankLocation spot;
    for (std::string_view rest = std::string_view(text).substr(0, text.find(':')); true;) {
        const size_t end = rest.find_first_of(",+/");
        const std::string_view word = rest.substr(0, end);
        const size_t cross = word.find('x');
        const auto times = cross == std::string_view::npos ? 1 : parse_count(word.substr(0, cross));
        const auto size = parse_count(word.substr(cross == std::string_view::npos ? 0 : cross + 1));
        if (!times || *times == 0 || !size || *size == 0 ||
            *size > (most_ranks_asked - ranks) / *times)
            return refuse_hosts(text);
        ranks += *times * *size;
        for (uint64_t i = 0; i < *times; i++) {
            if (i != 0) spot = {.node = 0, .host = spot.host + 1, .rack = spot.rack};
            berths.push_back({spot, *size});
        }
        if (end == std::string_view::npos) return berths;
        spot.node = rest[end] == '+' ? spot.node + 1 : 0;
        spot.host += rest[end] != '+';
        spot.rack += rest[end] == '/';
        rest.remove_prefix(end + 1);
    }
}

Result<std::shared_ptr<const RankTopology>> parse_hosts(const std::string &text) {
    const size_t colon = text.find(':');
    const bool deals = colon != std::string::npos;
    if (deals && text.substr(colon) != ":round")
        return no_choice("order of ranks", text.substr(colon + 1), {"round"});
    QCCL_TRY(std::vector<Berth> berths, parse_berths(text));
    std::vector<RankLocation> spots;
    for (bool has_more = true; has_more;) {
        has_more = false;
        for (Berth &berth : berths) {
            const uint64_t taken = deals ? std::min<uint64_t>(berth.left, 1) : berth.left;
            spots.insert(spots.end(), taken, berth.spot);
            berth.left -= taken;
            has_more = has_more || berth.left != 0;
        }
    }
    return std::shared_ptr<const RankTopology>(std::make_shared<RankTopology>(std::move(spots)));
}

void add_machine_options(CLI::App &app, const char *group, MachineRequest &to) {
    add_option(app, group, "--topology",
               "a file of hwloc, NCCL, RCCL or qccl-info topology --text, or a text such as "
               "'4 x node(8 gpu) net:50'",
               take_text(to.topology));
    add_option(app, group, "--ranks", "how many (those of --hosts, or as --topology has room)",
               take_count(to.ranks, 1, most_ranks_asked));
    add_option(app, group, "--hosts",
               "ranks of each host: 2,2,3, 64x8, 2,2,3:round or, with nodes and racks, 1+1,2/3",
               [&to](const std::string &text) -> Done {
                   QCCL_TRY(to.places, parse_hosts(text));
                   return {};
               });
    add_option(app, group, "--rate", "of a host's line, as 10gbit or 12.5GB/s",
               [&to](const std::string &text) -> Done {
                   to.bytes_per_second = parse_rate(text);
                   if (to.bytes_per_second.value_or(0) == 0)
                       return refuse("'%.40s' is no rate above 0: expected one as 10gbit or "
                                     "12.5GB/s",
                                     text.c_str());
                   return {};
               });
    add_option(app, group, "--latency", "of a message between hosts, as 5us",
               [&to](const std::string &text) -> Done {
                   to.latency = parse_duration(text);
                   if (!to.latency)
                       return refuse("'%.40s' is no duration: expected one as 5us", text.c_str());
                   if (*to.latency > std::chrono::seconds(1)) // no unit: seconds
                       return refuse("'%.40s' is more than a second: expected microseconds, as 5us",
                                     text.c_str());
                   return {};
               });
    add_option(app, group, "--cores",
               "of each host, as 64 or 0.5, or of all hosts together, as 2:shared (as --topology "
               "says, or as this machine has)",
               [&to](const std::string &text) -> Done {
                   const size_t colon = text.find(':');
                   to.hosts_share_cores = colon != std::string::npos;
                   if (to.hosts_share_cores && text.substr(colon) != ":shared")
                       return no_choice("sharing of cores", text.substr(colon + 1), {"shared"});
                   const auto thousandths = parse_decimal(text.substr(0, colon), 3);
                   if (thousandths.value_or(0) == 0)
                       return refuse("'%.40s' is no number of cores above 0", text.c_str());
                   to.cores = static_cast<double>(*thousandths) / 1000;
                   return {};
               });
}

// Returns the number of processors of each machine that has ranks; 0: unknown.
static std::map<uint32_t, double> processors_of(const JobTopology &job) {
    std::map<uint32_t, double> processors;
    for (const uint32_t place : job.places) processors[job.graph.machine_of(place)] = 0;
    for (const uint32_t numa : job.graph.of_kind(VertexKind::numa))
        if (const auto machine = processors.find(job.graph.machine_of(numa));
            machine != processors.end())
            machine->second += job.graph.vertex(numa).cpus.size();
    return processors;
}

static std::optional<double> least_cores(const MachineRequest &request, const Machine &machine) {
    if (request.cores) return request.cores;
    if (!machine.topology) return std::max(1U, std::thread::hardware_concurrency());
    double least = std::numeric_limits<double>::infinity();
    for (const auto &[host, processors] : processors_of(*machine.topology))
        least = std::min(least, processors);
    return least > 0 && std::isfinite(least) ? std::optional(least) : std::nullopt;
}

static double most_ranks_per_core(const Machine &machine) {
    if (machine.has_gpus || !machine.cores) return 1;
    return std::max(1.0, static_cast<double>(machine.ranks_together()) / *machine.cores);
}

static Done take_topology(const MachineRequest &request, Machine &machine) {
    if (request.places)
        return invalid_argument("--topology says where the ranks are; leave --hosts out");
    JobTopology job;
    QCCL_TRY(job.graph, read_topology(request.topology));
    QCCL_TRY(job.places, rank_places(job.graph, request.ranks));
    if (job.places.size() > most_ranks_asked)
        return invalid_argument(
            "the topology has room for %zu ranks; at most %u are possible: name "
            "fewer by --ranks",
            job.places.size(), most_ranks_asked);
    machine.ranks = static_cast<uint32_t>(job.places.size());
    machine.places = make_rank_topology(location(job), rings_of(job));
    machine.remote = remote_link(job);
    machine.local = local_link(job);
    machine.has_gpus = are_on_gpus(job);
    machine.topology = std::make_shared<const JobTopology>(std::move(job));
    return {};
}

static Done take_hosts(const MachineRequest &request, Machine &machine) {
    machine.places = request.places;
    machine.ranks = request.places ? request.places->ranks() : request.ranks;
    if (request.ranks != 0 && machine.ranks != request.ranks)
        return invalid_argument("--hosts has %u ranks, and --ranks says %u", machine.ranks,
                                request.ranks);
    if (machine.hosts() > 1) machine.remote = RemoteLink();
    return {};
}

JobShape shape_of(const Machine &machine) {
    return {.ranks = machine.ranks, .hosts = static_cast<uint32_t>(machine.hosts())};
}

static Done take_calibration(Machine &machine) {
    QCCL_TRY(const FoundCalibration found, find_calibration(machine.settings));
    if (!found.warning.empty()) std::fprintf(stderr, "%s\n", found.warning.c_str());
    if (!found.file) return {};
    Measured measured{.figures = found.file->figures_of(shape_of(machine)), .job = {}};
    if (const MeasuredJob *const job = found.file->of(shape_of(machine))) {
        measured.job = job->counted;
        machine.simulated = std::make_shared<const Corrections>(job->simulated);
    }
    machine.measured = std::make_shared<const Measured>(measured);
    return {};
}

Result<Machine> find_machine(const MachineRequest &request) {
    Machine machine;
    QCCL_TRY(machine.settings, read_settings(environ));
    QCCL_TRY(machine.tiers, allowed_tiers(machine.settings));
    if (request.bytes_per_second) machine.settings.link_rate = request.bytes_per_second;
    if (request.latency) machine.settings.link_latency = request.latency;
    QCCL_TRY(request.topology.empty() ? take_hosts(request, machine)
                                      : take_topology(request, machine));
    machine.cores = least_cores(request, machine);
    machine.hosts_share_cores = request.hosts_share_cores && !machine.topology;
    if (request.hosts_share_cores && machine.topology)
        return invalid_argument("--topology says which host has which cores; leave :shared out");
    machine.ranks_per_core = most_ranks_per_core(machine);
    if (!machine.topology) QCCL_TRY(take_calibration(machine));
    return machine;
}

// GPUs can read each other's memory over NVLink and similar links, and over PCIe below one root.
static bool reach_each_other(const Machine &machine) {
    return machine.has_gpus && machine.local &&
           machine.local->link_class != LinkClass::cpu_interconnect;
}

static CostModel gpu_speeds(const Machine &machine) {
    const bool has_gpu_links =
        reach_each_other(machine) && machine.local->link_class != LinkClass::pcie;
    CostModel speeds =
        gpu_cost_model_by(machine.settings, 1, has_gpu_links ? GpuReach::gpus : GpuReach::host);
    if (!machine.local || !machine.local->bytes_per_ns) return speeds;
    constexpr double ends = 2; // each end accounts for half the time of a byte
    for (CostModel::LinkCosts *const link : {&speeds.local, &speeds.eager})
        for (LinkSpeeds *const each : {&link->alone, &link->shared})
            each->byte_ns = 1 / (ends * *machine.local->bytes_per_ns);
    return speeds;
}

static CostModel speeds_of(const Machine &machine) {
    CostModel speeds =
        machine.has_gpus
            ? gpu_speeds(machine)
            : cost_model_by(machine.settings, machine.ranks_per_core,
                            CodecRates::of_tier(name(best_kernels(machine.tiers).tier)));
    if (machine.remote) apply_link(*machine.remote, machine.settings, speeds);
    if (machine.measured && !machine.has_gpus)
        machine.measured->figures.apply(machine.settings, speeds);
    if (machine.hosts() > 1) return speeds;
    if (!machine.has_gpus) {
        speeds.eager_bytes = TransportOptions().eager_slot_bytes;
    } else if (reach_each_other(machine)) {
        speeds.eager_bytes = gpu_eager_bytes;
        speeds.eager_exchanges = gpu_eager_exchanges;
    }
    return speeds;
}

std::optional<double> Machine::remote_bytes_per_ns() const {
    if (hosts() < 2) return std::nullopt;
    const CostModel speeds = speeds_of(*this);
    return speeds.is_remote_rate_known() ? std::optional(speeds.remote_bytes_per_ns) : std::nullopt;
}

bool Machine::has_measured_rate() const {
    return hosts() > 1 && speeds_of(*this).remote_rate_source == RateSource::measured;
}

static SharedLinks links_of(const Machine &machine) {
    SharedLinks links;
    if (machine.topology) links = shared_links(*machine.topology);
    take_settings(machine.settings, machine.places.get(), links);
    return links;
}

std::optional<double> Machine::rack_bytes_per_ns() const {
    const SharedLinks links = links_of(*this);
    return links.racks ? links.racks->slowest_bytes_per_ns() : std::nullopt;
}

PlannerInputs inputs_of(const Machine &machine, const Pieces &pieces) {
    const auto cut_with = [&](const Settings &settings) {
        const Chunking cut = chunking_by(settings, machine.ranks, machine.hosts() > 1);
        return machine.has_gpus ? chunking_for_gpus(settings, cut) : cut;
    };
    const ShapeLimits limits = limits_of(chunking_with(pieces, cut_with(machine.settings)));
    if (machine.settings.reproducible)
        return reproducible_inputs(limits, limits_of(chunking_by({}, machine.ranks, false)));
    PlannerInputs inputs{.speeds = speeds_of(machine),
                         .limits = limits,
                         .usual_limits = limits_of(cut_with({})),
                         .whole_up_to_bytes = machine.settings.oneshot_max_bytes,
                         .links = links_of(machine)};
    if (machine.measured && machine.measured->job.shape == shape_of(machine))
        inputs.corrections = {machine.measured, &machine.measured->job};
    return inputs;
}

} // namespace qccl::perf
