// Chooses a codec for each layer of a model, so that the layers together take the fewest bits and
// lose no more than one codec for all of them would. The problem and its solution are those of
// L-GreCo (Markov et al., "L-GreCo: Layerwise-Adaptive Gradient Compression for Efficient and
// Accurate Deep Learning", MLSys 2024): a knapsack, solved by dynamic programming over the error.
//
// Used by the layer codecs of the C API and by qccl-info adapt. Pure; any thread may call.
#pragma once

#include "base/result.hpp"
#include "codec/codec.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace qccl {

// What one codec makes of one layer.
struct LayerOption {
    double bits = 0;  // of the whole layer's payload, packed if the codec packs
    double error = 0; // sum of the squared errors of the layer's values
};

// The options of one layer, by the number of the codec, as many for each layer. Empty: nothing is
// known of the layer, which keeps the uniform codec and takes no part in the budget.
using LayerOptions = std::vector<LayerOption>;

struct LayerChoice {
    std::vector<uint32_t> codecs; // by layer
    std::vector<double> bits;     // by layer, with its codec; 0: nothing is known of the layer
    // Of the known layers together: with these codecs, and with the uniform codec.
    LayerOption chosen, uniform;
};

// Steps into which the budget is cut. An error counts as the next whole step, so that the choice
// keeps the budget; it takes no more bits than the best one for a budget that is smaller by a step
// for each layer.
inline constexpr uint32_t budget_steps = 10'000;
inline constexpr size_t most_layers = 16'384;
inline constexpr size_t most_layer_codecs = 256;

struct LayerCandidates {
    std::vector<Codec> codecs;
    uint32_t uniform = 0; // the number of the uniform codec
};
// Adds the uniform codec to the codecs if it is not among them. The error (invalid_argument) says
// which codec cannot serve sums of `type`, or that there are too many.
Result<LayerCandidates> layer_candidates(std::vector<Codec> codecs, const Codec &uniform,
                                         DataType type);

// Returns the bits of a layer's payload, not packed.
double layer_bits(const Codec &codec, DataType type, uint64_t count);

// `uniform`: the number of the codec whose error on all layers is the budget. A codec whose error
// of a layer is not finite is not chosen for it. If the uniform codec's is not, nothing is known of
// the layer; if the sum of its errors is not, all layers keep it. At most most_layers layers and
// most_layer_codecs codecs.
LayerChoice choose_layer_codecs(std::span<const LayerOptions> layers, uint32_t uniform);

// The codecs to choose from where the caller names none: integers in blocks of several lengths,
// which lie close together in bits and in error, and plain values.
std::vector<Codec> usual_layer_codecs();

} // namespace qccl
