#include "perf/codec_command.hpp"

#include "base/choice.hpp"
#include "kernels/kernels.hpp"
#include "perf/codec_bench.hpp"
#include "perf/command_line.hpp"
#include "perf/interrupts.hpp"
#include "perf/json.hpp"
#include "perf/json_file.hpp"
#include "perf/standard_output.hpp"
#include "perf/started.hpp"
#include "perf/version_line.hpp"

#include <cstdio>
#include <cstdlib>
#include <optional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

struct CodecArguments {
    std::string codecs = "int8,int4,minmax";
    std::string type = "float";
    std::string tier = "best";
    std::string json_file;
};

struct Output {
    std::FILE *table;
    std::optional<JsonFile> json;
};

// One codec on one tier in one place: four rows.
static Done measure(const Codec &codec, DataType type, const Kernels &kernels, BenchPlace place,
                    Output &output) {
    const char *const where = bench_place_names[static_cast<size_t>(place)];
    for (const CodecSpeed &speed : measure_codec(codec, type, kernels, place)) {
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

static Done print_header(Output &output) {
    std::fprintf(output.table, "# %-22s  %-8s  %-8s  %-6s  %-10s  %8s  %9s\n", "codec", "type",
                 "tier", "where", "operation", "GB/s", "of memcpy");
    return output.json ? output.json->begin(rows_head, rows_tail) : Done{};
}

static Result<std::vector<const Kernels *>> tiers_called(const std::string &called) {
    if (called == "best") return std::vector<const Kernels *>{&best_kernels()};
    std::vector<const Kernels *> chosen;
    Names possible{"best", "all"};
    for (const Kernels *const kernels : available_kernels()) {
        possible.push_back(name(kernels->tier));
        if (called == "all" || called == name(kernels->tier)) chosen.push_back(kernels);
    }
    if (chosen.empty()) return no_choice("--tier", called, possible);
    return chosen;
}

// Returns the exit status: a signal between two measurements ends the run.
static Result<int> run(const CodecArguments &arguments) {
    QCCL_TRY(const std::vector<Codec> codecs, parse_codec_list(arguments.codecs));
    QCCL_TRY(const std::vector<const Kernels *> tiers, tiers_called(arguments.tier));
    const auto type = parse_type(arguments.type);
    if (!type)
        return no_choice("--datatype", arguments.type, {"float", "double", "half", "bfloat16"});
    for (const Codec &codec : codecs)
        QCCL_TRY(check_codec(codec, Collective::all_reduce, *type, RedOp::sum));
    Output output{.table = arguments.json_file == "-" ? stderr : stdout, .json = {}};
    if (!arguments.json_file.empty()) {
        QCCL_TRY(output.json, JsonFile::open(arguments.json_file));
    }

    const Interrupts interrupts;
    int status = EXIT_SUCCESS;
    QCCL_TRY(print_header(output));
    for (const Codec &codec : codecs)
        for (const Kernels *const kernels : tiers)
            for (const BenchPlace place : {BenchPlace::l2, BenchPlace::stream}) {
                if (status != EXIT_SUCCESS) break;
                QCCL_TRY(measure(codec, *type, *kernels, place, output));
                const int signal = interrupts.wait(std::chrono::milliseconds(0));
                if (signal != 0) status = status_of_signal(signal);
            }
    if (output.json) QCCL_TRY(output.json->deliver());
    return status;
}

int run_codec_command(const std::vector<std::string> &arguments) {
    static constexpr auto *group = "Options";
    CodecArguments parsed;
    CLI::App app("Measures codecs on one core beside memcpy; GB/s of unencoded bytes.",
                 "qccl-perf codec");
    app.set_version_flag("--version", version_line("qccl-perf"));
    add_option(app, group, "--codec", "codecs, separated by commas (" + parsed.codecs + ")",
               take_text(parsed.codecs));
    add_option(app, group, "-d,--datatype", "type of the values (float)", take_text(parsed.type));
    add_option(app, group, "--tier", "SIMD tier: best, all or its name (best)",
               take_text(parsed.tier));
    add_option(app, group, "--json", "JSON with one row for each speed; -: standard output",
               take_text(parsed.json_file));
    if (const auto answer = read_command_line(app, "qccl-perf codec", arguments))
        return tell_once(*answer);
    const Result<int> status = run(parsed);
    if (status) return *status;
    const Answer answer = refusal("qccl-perf codec", status.error().text);
    // What was asked for is the same in all processes, what goes wrong need not be.
    if (status.error().code == Code::invalid_argument) return tell_once(answer);
    (void)tell(answer);
    return EXIT_FAILURE;
}

} // namespace qccl::perf
