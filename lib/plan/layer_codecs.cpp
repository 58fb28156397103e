// Implements the dynamic program: a table of the fewest bits for each error that is spent, layer by
// layer, and the way back through it.
#include "plan/layer_codecs.hpp"

#include "codec/chunk.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace qccl {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
constexpr size_t budgets = budget_steps + 1;

// A codec that no other one of the layer betters in both.
struct Contender {
    uint32_t codec = 0, steps = 0;
    double bits = 0;
};

bool is_known(const LayerOptions &layer, uint32_t uniform) {
    return !layer.empty() && std::isfinite(layer[uniform].error);
}

// Ordered by steps, with fewer bits from each to the next.
std::vector<Contender> contenders_of(const LayerOptions &layer, double step) {
    std::vector<Contender> all;
    for (uint32_t codec = 0; codec < layer.size(); codec++) {
        // Without a budget only codecs that lose nothing take part.
        const double error = layer[codec].error;
        const double steps = error == 0 ? 0 : std::ceil(error / step);
        if (steps <= budget_steps)
            all.push_back({codec, static_cast<uint32_t>(steps), layer[codec].bits});
    }
    std::ranges::stable_sort(all, [](const Contender &a, const Contender &b) {
        return a.steps != b.steps ? a.steps < b.steps : a.bits < b.bits;
    });
    std::vector<Contender> best;
    for (const Contender &each : all)
        if (best.empty() || each.bits < best.back().bits) best.push_back(each);
    return best;
}

class Knapsack {
public:
    explicit Knapsack(size_t layers) : bits_(budgets, impossible), chosen_(layers * budgets) {
        bits_[0] = 0;
    }

    void add(size_t layer, std::span<const Contender> contenders) {
        std::vector<double> bits(budgets, impossible);
        uint8_t *const chosen = chosen_.data() + layer * budgets;
        for (uint8_t i = 0; const Contender &each : contenders) {
            for (size_t spent = each.steps; spent < budgets; spent++) {
                const double sum = bits_[spent - each.steps] + each.bits;
                if (sum >= bits[spent]) continue;
                bits[spent] = sum;
                chosen[spent] = i;
            }
            i++;
        }
        bits_.swap(bits);
    }

    // The smallest error of those with the fewest bits.
    size_t best() const {
        return static_cast<size_t>(std::ranges::min_element(bits_) - bits_.begin());
    }
    double bits(size_t spent) const { return bits_[spent]; }
    // The candidate of the layer where so much is spent on it and the layers before it.
    size_t chosen(size_t layer, size_t spent) const { return chosen_[layer * budgets + spent]; }

private:
    std::vector<double> bits_;    // fewest, by the steps spent so far
    std::vector<uint8_t> chosen_; // candidate, by layer and steps
};

} // namespace

static void take(LayerChoice &choice, size_t layer, const LayerOptions &options, uint32_t codec) {
    choice.codecs[layer] = codec;
    choice.bits[layer] = options[codec].bits;
    choice.chosen.bits += options[codec].bits;
    choice.chosen.error += options[codec].error;
}

// Gives each known layer the codec with the fewest bits of those that lose no more than the uniform
// one. That keeps the budget whatever the steps are.
static void take_no_worse(std::span<const LayerOptions> layers, std::span<const size_t> known,
                          uint32_t uniform, LayerChoice &choice) {
    choice.chosen = {};
    for (const size_t layer : known) {
        const LayerOptions &options = layers[layer];
        uint32_t best = uniform;
        for (uint32_t codec = 0; codec < options.size(); codec++)
            if (options[codec].error <= options[uniform].error &&
                options[codec].bits < options[best].bits)
                best = codec;
        take(choice, layer, options, best);
    }
}

LayerChoice choose_layer_codecs(std::span<const LayerOptions> layers, uint32_t uniform) {
    LayerChoice choice;
    choice.codecs.assign(layers.size(), uniform);
    choice.bits.assign(layers.size(), 0);
    std::vector<size_t> known;
    for (size_t layer = 0; layer < layers.size(); layer++) {
        if (!is_known(layers[layer], uniform)) continue;
        known.push_back(layer);
        take(choice, layer, layers[layer], uniform);
    }
    choice.uniform = choice.chosen;
    if (!std::isfinite(choice.uniform.error)) return choice; // the sum has overflowed
    const double step = choice.uniform.error / budget_steps;
    std::vector<std::vector<Contender>> contenders;
    Knapsack knapsack(known.size());
    for (const size_t layer : known) {
        contenders.push_back(contenders_of(layers[layer], step));
        knapsack.add(contenders.size() - 1, contenders.back());
    }
    size_t spent = knapsack.best();
    // Errors that are rounded to whole steps may not even have room for the uniform codec.
    take_no_worse(layers, known, uniform, choice);
    if (knapsack.bits(spent) >= choice.chosen.bits) return choice;
    choice.chosen = {};
    for (size_t i = known.size(); i-- > 0;) {
        const Contender &found = contenders[i][knapsack.chosen(i, spent)];
        take(choice, known[i], layers[known[i]], found.codec);
        spent -= found.steps;
    }
    return choice;
}

Result<LayerCandidates> layer_candidates(std::vector<Codec> codecs, const Codec &uniform,
                                         DataType type) {
    LayerCandidates made{.codecs = std::move(codecs)};
    const auto found = std::ranges::find_if(
        made.codecs, [&](const Codec &codec) { return spec(codec) == spec(uniform); });
    made.uniform = static_cast<uint32_t>(found - made.codecs.begin());
    if (found == made.codecs.end()) made.codecs.push_back(uniform);
    if (made.codecs.size() > most_layer_codecs)
        return invalid_argument("candidates: %zu codecs with the uniform one; possible are %zu",
                                made.codecs.size(), most_layer_codecs)
            .compared(most_layer_codecs, static_cast<int64_t>(made.codecs.size()));
    for (const Codec &codec : made.codecs) {
        if (codec.is_auto() || codec.guard != 0 || codec.owner != OwnerKeeps::decoded)
            return invalid_argument("%s is no codec of layers: they have a name, and neither guard "
                                    "nor owner=exact",
                                    spec(codec).c_str());
        if (codec.shares_scales())
            return invalid_argument("%s is no codec of layers: what it loses depends on scales on "
                                    "which ranks agree in a call",
                                    spec(codec).c_str());
        QCCL_TRY(check_codec(codec, Collective::all_reduce, type, RedOp::sum));
    }
    return made;
}

double layer_bits(const Codec &codec, DataType type, uint64_t count) {
    return 8 * static_cast<double>(payload_layout(codec, type, count).bytes);
}

std::vector<Codec> usual_layer_codecs() {
    std::vector<Codec> codecs;
    for (const char *const each :
         {"int2:block=64", "int3", "int3:block=64", "int3:block=128", "int4:block=16", "int4",
          "int4:block=64", "int4:block=128", "int5", "int5:block=64", "int5:block=128",
          "int6:block=64", "int6:block=128", "int8:block=128", "none"})
        codecs.push_back(*parse_codec(each));
    return codecs;
}

} // namespace qccl
