// Implements qccl-perf codec: its options, the measurements on the host and on a GPU, and their
// output.
#include "perf/commands/perf_commands.hpp"

#include "base/text.hpp"
#include "codec/codec_names.hpp"
#include "device/device.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/cli/command_line.hpp"
#include "perf/report/report.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/codec_bench.hpp"
#include "perf/run/launch.hpp"
#include "perf/run/session.hpp"
#include "plan/cost.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

struct CodecArguments {
    std::string codecs; // empty: the default of the device
    std::string type = "float";
    std::string tier; // empty: the best
    std::string device = "host";
    std::optional<uint64_t> bytes; // nothing: the default of the device
    bool prints_rates = false;     // print rows of the planner's table for all tiers
    std::string json_file;
    std::vector<std::string> command_line; // the whole command line of the program
};
constexpr const char *host_codecs = "int8,int4,minmax";

// The default on a GPU: all codecs but those that pack, for which GPUs have no kernels.
static std::string all_codecs() {
    std::string all;
    for (const std::string_view word : codec_words) {
        const auto codec = parse_codec(word);
        if (codec && !codec->packs) all.append(all.empty() ? "" : ",").append(word);
    }
    return all;
}

// The codecs for which the planner has rates.
static std::string listed_rated_codecs() {
    std::string all;
    for (const std::string_view name : rated_codecs())
        all.append(all.empty() ? "" : ",").append(name);
    return all;
}

// Digits beyond these are far below the difference from machine to machine.
static void print_rate_row(const Codec &codec, const Kernels &kernels,
                           std::span<const CodecSpeed> speeds) {
    const auto text = [&](BenchOperation operation) {
        const double speed = speeds[static_cast<size_t>(operation)].gigabytes_per_second;
        char digits[32];
        std::snprintf(digits, sizeof digits, "%.*fF", speed < 9.995 ? 2 : 1, speed);
        return std::string(digits);
    };
    std::printf("    {\"%s\", \"%s\", {%s, %s, %s}},\n", spec(codec).c_str(), name(kernels.tier),
                text(BenchOperation::encode).c_str(), text(BenchOperation::decode).c_str(),
                text(BenchOperation::decode_add).c_str());
}

static Done print_rates(const std::vector<Codec> &codecs, const std::vector<const Kernels *> &tiers,
                        const CodecArguments &arguments) {
    for (const Codec &codec : codecs)
        for (const Kernels *const kernels : tiers) {
            print_rate_row(codec, *kernels,
                           measure_codec(codec, DataType::float32, *kernels, BenchPlace::stream,
                                         {.bytes = arguments.bytes.value_or(0),
                                          .values = SourceValues::even}));
            QCCL_TRY(flush(stdout));
        }
    return {};
}

struct Output {
    std::FILE *table;
    std::vector<std::string> command_line;
    std::optional<JsonFile> json{};
    bool json_has_begun = false;
};

static Done begin_json(Output &output) {
    output.json_has_begun = true;
    return output.json ? output.json->begin(rows_head(output.command_line), rows_tail) : Done{};
}

// Measures one codec on one tier in one place and prints four rows.
static Done measure(const Codec &codec, DataType type, const Kernels &kernels, BenchPlace place,
                    uint64_t bytes, Output &output) {
    const char *const where = bench_place_names[static_cast<size_t>(place)];
    for (const CodecSpeed &speed : measure_codec(codec, type, kernels, place, {.bytes = bytes})) {
        const char *const operation = bench_operation_names[static_cast<size_t>(speed.operation)];
        const Json row{{"codec", spec(codec)},
                       {"dtype", name(type)},
                       {"tier", name(kernels.tier)},
                       {"operation", operation},
                       {"where", where},
                       {"GBps", speed.gigabytes_per_second},
                       {"vs_memcpy", speed.vs_memcpy}};
        if (output.json) QCCL_TRY(output.json->add(row.dump(), rows_tail));
        std::fprintf(output.table, "%-24s  %-8s  %-8s  %-6s  %-10s  %8.2f  %9.2f\n",
                     spec(codec).c_str(), name(type), name(kernels.tier), where, operation,
                     speed.gigabytes_per_second, speed.vs_memcpy);
        QCCL_TRY(flush(output.table));
    }
    return {};
}

// Measures one codec on a GPU and prints four or five rows.
static Done measure_on_gpu(const Codec &codec, DataType type, const std::shared_ptr<Gpu> &gpu,
                           uint64_t bytes, Output &output) {
    QCCL_TRY(const auto speeds, measure_gpu_codec(codec, type, gpu, {.bytes = bytes}));
    const GpuTraits &traits = gpu->traits();
    for (const GpuCodecSpeed &speed : speeds) {
        const char *const operation = gpu_operation_names[static_cast<size_t>(speed.operation)];
        const Json row{{"codec", spec(codec)},    {"dtype", name(type)},
                       {"device", traits.name},   {"model", traits.model},
                       {"operation", operation},  {"bytes", bytes},
                       {"time_us", speed.us},     {"GBps", speed.gigabytes_per_second},
                       {"vs_copy", speed.vs_copy}};
        if (output.json) QCCL_TRY(output.json->add(row.dump(), rows_tail));
        std::fprintf(output.table, "%-24s  %-8s  %-12s  %-17s  %10.2f  %8.2f  %8.3f\n",
                     spec(codec).c_str(), name(type), traits.name.c_str(), operation, speed.us,
                     speed.gigabytes_per_second, speed.vs_copy);
        QCCL_TRY(flush(output.table));
    }
    return {};
}

static Done print_gpu_header(Output &output, const GpuTraits &traits, uint64_t bytes) {
    std::fprintf(output.table,
                 "# %s: %s; %llu bytes of values; GB/s of bytes read and written\n"
                 "# %-22s  %-8s  %-12s  %-17s  %10s  %8s  %8s\n",
                 traits.name.c_str(), traits.model.c_str(), static_cast<unsigned long long>(bytes),
                 "codec", "type", "device", "operation", "us", "GB/s", "of copy");
    return begin_json(output);
}

static Done print_header(Output &output) {
    std::fprintf(output.table, "# %-22s  %-8s  %-8s  %-6s  %-10s  %8s  %9s\n", "codec", "type",
                 "tier", "where", "operation", "GB/s", "of memcpy");
    return begin_json(output);
}

static Result<std::vector<const Kernels *>> tiers_called(const std::string &called) {
    if (called.empty() || called == "best") return std::vector<const Kernels *>{&best_kernels()};
    std::vector<const Kernels *> chosen;
    Names possible{"best", "all"};
    for (const Kernels *const kernels : available_kernels()) {
        possible.push_back(name(kernels->tier));
        if (called == "all" || called == name(kernels->tier)) chosen.push_back(kernels);
    }
    if (chosen.empty()) return no_choice("--tier", called, possible);
    return chosen;
}

// The next functions return the exit status. A signal ends the run between two measurements.
static int interrupted(const Interrupts &interrupts) {
    const int signal = interrupts.wait(std::chrono::milliseconds(0));
    return signal == 0 ? EXIT_SUCCESS : status_of_signal(signal);
}

static Result<int> run_on_host(const CodecArguments &arguments, const std::vector<Codec> &codecs,
                               DataType type, const std::vector<const Kernels *> &tiers,
                               const Interrupts &interrupts, Output &output) {
    QCCL_TRY(print_header(output));
    for (const Codec &codec : codecs)
        for (const Kernels *const kernels : tiers)
            for (const BenchPlace place : {BenchPlace::l2, BenchPlace::stream}) {
                QCCL_TRY(
                    measure(codec, type, *kernels, place, arguments.bytes.value_or(0), output));
                if (const int status = interrupted(interrupts); status != EXIT_SUCCESS)
                    return status;
            }
    return EXIT_SUCCESS;
}

static Result<int> run_on_gpu(const CodecArguments &arguments, const std::vector<Codec> &codecs,
                              DataType type, const Interrupts &interrupts, Output &output) {
    QCCL_TRY(const std::shared_ptr<Gpu> gpu, open_gpu(arguments.device));
    const uint64_t bytes = arguments.bytes.value_or(default_gpu_bytes(gpu->traits()));
    QCCL_TRY(print_gpu_header(output, gpu->traits(), bytes));
    for (const Codec &codec : codecs) {
        QCCL_TRY(measure_on_gpu(codec, type, gpu, bytes, output));
        if (const int status = interrupted(interrupts); status != EXIT_SUCCESS) return status;
    }
    return EXIT_SUCCESS;
}

// Returns the host memory that a measurement needs, in bytes.
static double host_bytes(const std::string &device, const Codec &codec, DataType type,
                         uint64_t bytes) {
    if (device == "host") return codec_bench_bytes(codec, type, bytes);
    return gpu_codec_host_bytes(codec, type, bytes, device.starts_with("emulated"));
}

static Done check_bytes(const CodecArguments &arguments, const std::vector<Codec> &codecs,
                        DataType type) {
    if (!arguments.bytes) return {};
    if (*arguments.bytes < type_bytes(type))
        return refuse("--bytes %llu is less than one %s",
                      static_cast<unsigned long long>(*arguments.bytes), name(type));
    double needed = 0;
    for (const Codec &codec : codecs)
        needed = std::max(needed, host_bytes(arguments.device, codec, type, *arguments.bytes));
    const auto available = available_memory_bytes();
    if (!available || needed <= static_cast<double>(*available)) return {};
    return refuse("buffers for values of %s need %s of memory, and this machine has %s available",
                  memory_text(static_cast<double>(*arguments.bytes)).c_str(),
                  memory_text(needed).c_str(),
                  memory_text(static_cast<double>(*available)).c_str());
}

static Result<int> run(const CodecArguments &arguments) {
    QCCL_TRY(check_device("--device", arguments.device));
    const bool is_host = arguments.device == "host";
    if (!is_host && !arguments.tier.empty())
        return refuse("--tier %.40s is of the host's processor, and --device names %s",
                      arguments.tier.c_str(), arguments.device.c_str());
    if (arguments.prints_rates &&
        (!is_host || arguments.type != "float" || !arguments.json_file.empty()))
        return refuse("--rates prints rows of fp32 on the host: it takes no --device, no "
                      "--datatype and no --json");
    const std::string called = !arguments.codecs.empty() ? arguments.codecs
                               : arguments.prints_rates  ? listed_rated_codecs()
                               : is_host                 ? std::string(host_codecs)
                                                         : all_codecs();
    QCCL_TRY(const std::vector<Codec> codecs, parse_codec_list(called));
    const bool has_all_tiers = arguments.prints_rates && arguments.tier.empty();
    QCCL_TRY(const std::vector<const Kernels *> tiers,
             tiers_called(has_all_tiers ? "all" : arguments.tier));
    const auto type = parse_type(arguments.type);
    if (!type)
        return no_choice("--datatype", arguments.type, {"float", "double", "half", "bfloat16"});
    for (const Codec &codec : codecs) {
        if (codec.is_auto())
            return refuse("%s is chosen for a collective; codecs are measured by their names",
                          spec(codec).c_str());
        if (codec.shares_scales())
            return refuse("%s sums integers in collectives; codecs are measured by what they make "
                          "of values alone",
                          spec(codec).c_str());
        QCCL_TRY(check_type(codec, *type));
        if (codec.packs && !is_host)
            return refuse("%s is entropy coded, and GPUs have no kernels for that",
                          spec(codec).c_str());
    }
    QCCL_TRY(check_bytes(arguments, codecs, *type));
    if (how_started().launch(false) != Launch::processes)
        return refuse("codecs are measured by one process; under mpirun and its like each would "
                      "measure beside the others");
    if (arguments.prints_rates) {
        QCCL_TRY(print_rates(codecs, tiers, arguments));
        return EXIT_SUCCESS;
    }
    Output output{.table = arguments.json_file == "-" ? stderr : stdout,
                  .command_line = arguments.command_line};
    if (!arguments.json_file.empty()) {
        QCCL_TRY(output.json, JsonFile::open(arguments.json_file));
    }

    const Interrupts interrupts;
    Result<int> status = EXIT_SUCCESS;
    if (is_host)
        status = run_on_host(arguments, codecs, *type, tiers, interrupts, output);
    else
        status = run_on_gpu(arguments, codecs, *type, interrupts, output);
    // Keep the rows measured so far, even if the run has failed or was interrupted.
    if (output.json && output.json_has_begun) QCCL_TRY(output.json->deliver());
    return status;
}

int run_codec_command(const std::vector<std::string> &arguments,
                      const std::vector<std::string> &command_line) {
    static constexpr auto *group = "Options";
    CodecArguments parsed;
    parsed.command_line = command_line;
    CLI::App app("Measures codecs on one core beside memcpy, or on a GPU beside a copy there.",
                 "qccl-perf codec");
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_option(app, group, "--codec",
               std::string("codecs, separated by commas (") + host_codecs + "; all on a GPU)",
               take_text(parsed.codecs));
    add_option(app, group, "-d,--datatype", "type of the values (float)", take_text(parsed.type));
    add_option(app, group, "--tier", "SIMD tier: best, all or its name (best)",
               take_text(parsed.tier));
    app.add_flag("--rates", parsed.prints_rates,
                 "print rows for the planner's table (lib/plan/measured_rates.hpp), of all tiers")
        ->group(group);
    add_option(app, group, "--device", "host, or a GPU as in cuda:0 (host)",
               take_text(parsed.device));
    add_option(app, group, "-b,--bytes",
               "of the values (host: as caches ask for; GPU: 256M; emulated: 64K)",
               [&parsed](const std::string &text) -> Done {
                   return take_bytes(parsed.bytes.emplace())(text);
               });
    add_option(app, group, "--json", "JSON with one row for each speed; -: standard output",
               take_text(parsed.json_file));
    if (const auto answer = read_command_line(app, "qccl-perf codec", arguments))
        return tell_once(*answer);
    const Result<int> status = run(parsed);
    if (status) return *status;
    const Answer answer = refusal("qccl-perf codec", status.error().text);
    // An invalid request is the same in all processes, so one message is enough. Other errors may
    // differ.
    if (status.error().code == Code::invalid_argument) return tell_once(answer);
    (void)tell(answer);
    return EXIT_FAILURE;
}

} // namespace qccl::perf
