// Implements qccl-info adapt: measures what each candidate codec loses of each layer of the ranks'
// files, chooses a codec for each layer, and shows the choice as a table with bars, as JSON, and as
// a picture.
#include "base/text.hpp"
#include "device/encode_loss.hpp"
#include "kernels/cpu/cpu_tiers.hpp"
#include "perf/info/advice.hpp"
#include "perf/info/info_commands.hpp"
#include "perf/report/tool_files.hpp"
#include "perf/run/input_data.hpp"
#include "plan/layer_codecs.hpp"
#include "topology/formats/picture_svg.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace qccl::perf {

using Json = nlohmann::ordered_json;

void add_layer_choice_options(CLI::App &app, const char *group, LayerChoiceRequest &request) {
    add_option(app, group, "--input", "DIR/rank%r.npy: each rank's gradients (%r: its number)",
               take_text(request.input))
        ->required();
    add_option(app, group, "--layers",
               "the layers in the order of the values: a text (name, count) or a JSON",
               take_text(request.layers))
        ->required();
    add_option(app, group, "--uniform", "the codec whose error may be (int4)",
               [&request](const std::string &text) -> Done {
                   QCCL_TRY(request.uniform, parse_codec(text));
                   return {};
               });
    add_option(app, group, "--candidates", "codecs to choose from (int2 to int8, and none)",
               [&request](const std::string &text) -> Done {
                   QCCL_TRY(request.candidates, parse_codec_list(text));
                   return {};
               });
    add_option(app, group, "--svg", "write a picture to this file; -: standard output",
               take_text(request.svg));
    add_option(app, group, "--json", "write JSON to this file; -: standard output",
               take_text(request.json));
}

namespace {

struct LayerTable {
    std::vector<NamedTensor> layers;
    std::vector<Codec> codecs;
    uint32_t uniform = 0;
    std::vector<LayerOptions> options; // by layer
    double square = 0;                 // of all values
    LayerChoice choice = {};

    uint64_t values() const {
        uint64_t sum = 0;
        for (const NamedTensor &layer : layers) sum += layer.count;
        return sum;
    }
    double bits(size_t layer, uint32_t codec) const {
        return options[layer][codec].bits / static_cast<double>(layers[layer].count);
    }
    double chosen_bits(size_t layer) const { return bits(layer, choice.codecs[layer]); }
    double nmse(double error) const { return square == 0 ? 0 : error / square; }
    double all_bits(const LayerOption &all) const {
        return all.bits / static_cast<double>(values());
    }
};

Result<LayerTable> make_table(const LayerChoiceRequest &request, const Files &files) {
    LayerTable table{.layers = {}, .codecs = {}, .uniform = 0, .options = {}};
    QCCL_TRY(table.layers, read_tensors(request.layers));
    if (table.layers.size() > most_layers)
        return invalid_argument("%.300s has %zu layers; possible are %zu", request.layers.c_str(),
                                table.layers.size(), most_layers);
    if (table.values() != files.count())
        return invalid_argument("the layers of %.300s have %" PRIu64
                                " values together, but each rank has %" PRIu64,
                                request.layers.c_str(), table.values(), files.count());
    auto codecs = request.candidates.empty() ? usual_layer_codecs() : request.candidates;
    QCCL_TRY(LayerCandidates candidates,
             layer_candidates(std::move(codecs), request.uniform, files.type()));
    table.codecs = std::move(candidates.codecs);
    table.uniform = candidates.uniform;
    return table;
}

// Means over the ranks.
void measure(LayerTable &table, const Files &files, uint32_t ranks) {
    EncodeLoss encode_loss(best_kernels());
    const DataType type = files.type();
    std::vector<std::byte> values;
    uint64_t first = 0;
    for (const NamedTensor &layer : table.layers) {
        LayerOptions options(table.codecs.size());
        values.resize(layer.count * type_bytes(type));
        for (uint32_t rank = 0; rank < ranks; rank++) {
            files.read(rank, type, first, layer.count, values.data());
            encode_loss.read(type, values.data(), layer.count);
            for (size_t i = 0; i < table.codecs.size(); i++) {
                const Codec &codec = table.codecs[i];
                const Noise noise{
                    .key = noise_key(codec.seed, rank, 0), .call = 1, .first_index = first};
                const SampledLoss loss = encode_loss.measure(codec, noise);
                options[i].bits +=
                    8 * static_cast<double>(encode_loss.payload_bytes(codec)) / ranks;
                options[i].error += loss.error / ranks;
                if (i == 0) table.square += loss.square / ranks;
            }
        }
        table.options.push_back(std::move(options));
        first += layer.count;
    }
    table.choice = choose_layer_codecs(table.options, table.uniform);
}

void print_table(const LayerTable &table) {
    constexpr double marks_per_bit = 4, most_bits = 16;
    std::printf("%-32s %12s  %-20s %6s  a mark is a quarter of a bit\n", "layer", "values", "codec",
                "bits");
    for (size_t i = 0; i < table.layers.size(); i++) {
        const double bits = table.chosen_bits(i);
        const auto marks =
            static_cast<size_t>(std::lround(std::min(bits, most_bits) * marks_per_bit));
        const std::string bar = std::string(marks, '#') + (bits > most_bits ? "..." : "");
        std::printf("%-32.200s %12" PRIu64 "  %-20s %6.2f  %s\n", table.layers[i].name.c_str(),
                    table.layers[i].count, spec(table.codecs[table.choice.codecs[i]]).c_str(), bits,
                    bar.c_str());
    }
    const LayerOption &chosen = table.choice.chosen, &uniform = table.choice.uniform;
    std::printf("\nThe layers take %.3f bits a value instead of %.3f with %s (%.1f %% fewer), and "
                "lose %.3e instead of %.3e of their power.\n",
                table.all_bits(chosen), table.all_bits(uniform),
                spec(table.codecs[table.uniform]).c_str(), 100 * (1 - chosen.bits / uniform.bits),
                table.nmse(chosen.error), table.nmse(uniform.error));
}

std::string json_of(const LayerTable &table) {
    constexpr int format_version = 1;
    Json layers = Json::array();
    for (size_t i = 0; i < table.layers.size(); i++) {
        const LayerOption &option = table.options[i][table.choice.codecs[i]];
        layers.push_back({{"name", table.layers[i].name},
                          {"count", table.layers[i].count},
                          {"codec", spec(table.codecs[table.choice.codecs[i]])},
                          {"bits", table.chosen_bits(i)},
                          {"error", option.error},
                          {"uniform_error", table.options[i][table.uniform].error}});
    }
    const Json document{{"version", format_version},
                        {"uniform", spec(table.codecs[table.uniform])},
                        {"bits", table.all_bits(table.choice.chosen)},
                        {"uniform_bits", table.all_bits(table.choice.uniform)},
                        {"nmse", table.nmse(table.choice.chosen.error)},
                        {"uniform_nmse", table.nmse(table.choice.uniform.error)},
                        {"layers", layers}};
    return document.dump(1) + "\n";
}

// A bar for each layer, as high as the bits of a value; its name stands below, and a dashed line at
// the bits of the uniform codec.
std::string picture_of(const LayerTable &table) {
    constexpr double left = 50, top = 30, height = 220, bar = 18, gap = 6, names = 60;
    const auto count = static_cast<double>(table.layers.size());
    const double uniform = table.all_bits(table.choice.uniform);
    double most = uniform;
    for (size_t i = 0; i < table.layers.size(); i++) most = std::max(most, table.chosen_bits(i));
    const double width = std::max(left + count * (bar + gap) + gap, 420.0);
    const auto level = [&](double bits) { return top + height * (1 - bits / most); };
    SvgText svg;
    svg.text({left, top - 12}, "bits of a value, by layer", {.size = 11, .anchor = "start"});
    const double step = most > 12 ? 4 : most > 6 ? 2 : 1;
    for (double bits = 0; bits <= most; bits += step) {
        svg.line({{left, level(bits)}, {width, level(bits)}}, {.color = "#dee2e6"});
        char label[16];
        std::snprintf(label, sizeof label, "%g", bits);
        svg.text({left - 6, level(bits) + 4}, label, {.anchor = "end"});
    }
    double x = left + gap;
    for (size_t i = 0; i < table.layers.size(); i++, x += bar + gap) {
        const double y = level(table.chosen_bits(i));
        svg.rectangle({x, y, bar, top + height - y}, "#4dabf7", {.color = "#1971c2"}, 1);
        svg.text({x + bar / 2, top + height + 14 + 11 * static_cast<double>(i % 4)},
                 table.layers[i].name, {.size = 8}, 4 * (bar + gap));
    }
    svg.line({{left, level(uniform)}, {width, level(uniform)}},
             {.color = "#e03131", .width = 1.5, .is_dashed = true});
    svg.text({width, top - 12}, "dashed: " + spec(table.codecs[table.uniform]) + " for all layers",
             {.size = 11, .anchor = "end", .color = "#e03131"});
    return svg.finish(width + 20, top + height + names);
}

} // namespace

Done print_layer_choice(const LayerChoiceRequest &request) {
    if (request.svg == "-" && request.json == "-")
        return invalid_argument("only one of --svg and --json can go to standard output");
    const bool has_ranks = request.input.find("%r") != std::string::npos;
    const uint32_t ranks = has_ranks ? std::max(count_files(request.input), 1U) : 1;
    QCCL_TRY(const auto files, Files::open(request.input, ranks));
    QCCL_TRY(LayerTable table, make_table(request, *files));
    measure(table, *files, ranks);
    for (const LayerOptions &layer : table.options)
        if (!std::isfinite(layer[table.uniform].error))
            return invalid_argument("the data of %.300s have values that are not finite",
                                    request.input.c_str());
    if (!request.json.empty()) QCCL_TRY(write_file(request.json, json_of(table)));
    if (!request.svg.empty()) QCCL_TRY(write_file(request.svg, picture_of(table)));
    if (request.json != "-" && request.svg != "-") print_table(table);
    return {};
}

} // namespace qccl::perf
