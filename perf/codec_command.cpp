#include "perf/codec_command.hpp"

#include "base/choice.hpp"
#include "kernels/kernels.hpp"
#include "perf/codec_bench.hpp"
#include "perf/json.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

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

// One codec on one tier in one place: four rows.
static void measure(const Codec &codec, DataType type, const Kernels &kernels, BenchPlace place,
                    std::FILE *out, Json &rows) {
    const char *const where = bench_place_names[static_cast<size_t>(place)];
    for (const CodecSpeed &speed : measure_codec(codec, type, kernels, place)) {
        const char *const operation = bench_operation_names[static_cast<size_t>(speed.operation)];
        rows.push_back({{"codec", spec(codec)},
                        {"dtype", name(type)},
                        {"tier", name(kernels.tier)},
                        {"operation", operation},
                        {"where", where},
                        {"GBps", speed.gigabytes_per_second},
                        {"vs_memcpy", speed.vs_memcpy}});
        std::fprintf(out, "%-24s  %-8s  %-8s  %-6s  %-10s  %8.2f  %9.2f\n", spec(codec).c_str(),
                     name(type), name(kernels.tier), where, operation, speed.gigabytes_per_second,
                     speed.vs_memcpy);
        std::fflush(out);
    }
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

static Done run(const CodecArguments &arguments) {
    QCCL_TRY(const std::vector<Codec> codecs, parse_codec_list(arguments.codecs));
    QCCL_TRY(const std::vector<const Kernels *> tiers, tiers_called(arguments.tier));
    const auto type = parse_type(arguments.type);
    if (!type)
        return no_choice("--datatype", arguments.type, {"float", "double", "half", "bfloat16"});
    for (const Codec &codec : codecs)
        QCCL_TRY(check_codec(codec, Collective::all_reduce, *type, RedOp::sum));

    std::FILE *const out = arguments.json_file == "-" ? stderr : stdout;
    std::fprintf(out, "# %-22s  %-8s  %-8s  %-6s  %-10s  %8s  %9s\n", "codec", "type", "tier",
                 "where", "operation", "GB/s", "of memcpy");
    Json rows = Json::array();
    for (const Codec &codec : codecs)
        for (const Kernels *const kernels : tiers)
            for (const BenchPlace place : {BenchPlace::l2, BenchPlace::stream})
                measure(codec, *type, *kernels, place, out, rows);
    if (arguments.json_file.empty()) return {};
    return write_text(arguments.json_file, Json{{"rows", rows}}.dump(2) + "\n");
}

int run_codec_command(std::vector<std::string> arguments) {
    static constexpr int usage_error = 2;
    CodecArguments parsed;
    CLI::App app("Measures codecs on one core beside memcpy; GB/s of unencoded bytes.",
                 "qccl-perf codec");
    app.add_option("--codec", parsed.codecs, "codecs, separated by commas (" + parsed.codecs + ")");
    app.add_option("-d,--datatype", parsed.type, "type of the values (float)");
    app.add_option("--tier", parsed.tier, "SIMD tier: best, all or its name (best)");
    app.add_option("--json", parsed.json_file,
                   "JSON with one row for each speed; -: standard output");
    std::reverse(arguments.begin(), arguments.end()); // as CLI11 wants them
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError &error) {
        return app.exit(error) == 0 ? 0 : usage_error;
    }
    const Done done = run(parsed);
    if (done) return EXIT_SUCCESS;
    std::fprintf(stderr, "qccl-perf codec: %s\n", done.error().text);
    return done.error().code == Code::invalid_argument ? usage_error : EXIT_FAILURE;
}

} // namespace qccl::perf
