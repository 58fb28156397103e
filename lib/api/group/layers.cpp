// Checks lists of layers by name, and makes the arguments of each layer's call of the call's own.
#include "api/group/layers.hpp"

#include "base/hash.hpp"
#include "comm/boundary.hpp"
#include "plan/layer_codecs.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <span>

namespace qccl {

namespace {

using Layers = std::span<const qcclLayer_t>;

Layers layers_of(const qcclCollConfig_t &config) { return {config.layers, config.nlayers}; }

// Tensors of one dimension are biases and norms.
constexpr int32_t lossless_dimensions = 1;

bool is_lossless_by_rule(const qcclLayer_t &layer, const qcclCollConfig_t &config) {
    const uint64_t least = config.layer_min_size == 0 ? QCCL_LAYER_MIN_SIZE : config.layer_min_size;
    return layer.count < least || layer.dimensions == lossless_dimensions;
}

Done check_reserved(const qcclLayer_t &layer) {
    const auto *const words = std::ranges::find_if(layer.reserved, [](uint32_t x) { return x; });
    if (words == std::ranges::end(layer.reserved)) return {};
    const auto byte =
        reinterpret_cast<const char *>(words) - reinterpret_cast<const char *>(&layer);
    return invalid_argument("byte %td is set, but this library, version %d, has no field there; "
                            "fill the struct with zeros first",
                            byte, QCCL_VERSION);
}

Done check_layer(const qcclLayer_t &layer, size_t elements_left) {
    if (layer.count > elements_left)
        return invalid_argument("count is %zu, but %zu of the call's elements are left",
                                layer.count, elements_left)
            .compared(static_cast<int64_t>(elements_left), static_cast<int64_t>(layer.count));
    if (layer.dimensions < 0)
        return invalid_argument("dimensions is %" PRId32 "; possible are 0 (not told) and more",
                                layer.dimensions);
    // A call that is lossless by the rules does not look at the codec.
    if (layer.codec) QCCL_TRY(outcome(take_codec(layer.codec)));
    return check_reserved(layer);
}

Done check_config_of_layers(const qcclCollConfig_t &config) {
    if (config.nlayers == 0 || config.nlayers > most_layers)
        return invalid_argument("config: nlayers is %zu; possible are 1 to %zu", config.nlayers,
                                most_layers)
            .compared(static_cast<int64_t>(most_layers), static_cast<int64_t>(config.nlayers));
    if (config.state)
        return invalid_argument("config: state is set, and so is layers, each of which has a state "
                                "of its own");
    return config.codec ? outcome(take_codec(config.codec)) : Done();
}

Done check_list(const CallArguments &given, const qcclCollConfig_t &config) {
    QCCL_TRY(check_config_of_layers(config));
    size_t left = given.count;
    for (size_t i = 0; i < config.nlayers; i++) {
        const qcclLayer_t &layer = config.layers[i];
        if (const Done checked = check_layer(layer, left); !checked)
            return of_layer(i, checked.error());
        left -= layer.count;
    }
    if (left == 0) return {};
    return invalid_argument("config: the layers have %zu elements together, but count is %zu",
                            given.count - left, given.count)
        .compared(static_cast<int64_t>(given.count), static_cast<int64_t>(given.count - left));
}

// The layers' own calls see their own parts of the buffers alone.
Done check_vectors(const CallArguments &given, DataType type) {
    const size_t bytes = given.count * type_bytes(type);
    const Buffer send{"send", given.send, bytes}, recv{"recv", given.recv, bytes};
    QCCL_TRY(check_pointer(send));
    QCCL_TRY(check_pointer(recv));
    return given.send == given.recv ? Done() : check_apart(send, recv);
}

} // namespace

bool lists_layers(const CallArguments &with_config) {
    const qcclCollConfig_t &config = *with_config.config;
    return with_config.collective == Collective::all_reduce && config.magic == QCCL_CONFIG_MAGIC &&
           config.size >= coll_config_rule.first_bytes && config.layers;
}

Error of_layer(size_t number, const Error &error) {
    return reworded(error, "layers[%zu]: %.460s", number, error.text);
}

uint32_t hash_layers(const CallArguments &given) {
    return hash_counts(layers_of(*given.config),
                       [](const qcclLayer_t &layer) { return layer.count; }) |
           1;
}

Done split_into_layers(const CallArguments &given, const EachLayer &each) {
    QCCL_TRY(const qcclCollConfig_t config, take_config(given.config));
    QCCL_TRY(const DataType type, take_type(given.type));
    QCCL_TRY(check_count(given.count_name, given.count, type, 1));
    QCCL_TRY(check_list(given, config));
    QCCL_TRY(check_vectors(given, type));
    size_t at = 0; // in bytes
    for (size_t i = 0; i < config.nlayers; i++) {
        const qcclLayer_t &layer = config.layers[i];
        qcclCollConfig_t own = config;
        own.layers = nullptr;
        own.nlayers = 0;
        own.layer_min_size = 0;
        own.state = layer.state;
        CallArguments call = given;
        call.is_lossless = is_lossless_by_rule(layer, config);
        own.codec = call.is_lossless ? nullptr : layer.codec ? layer.codec : config.codec;
        call.config = &own;
        call.count = layer.count;
        if (given.send) call.send = static_cast<const std::byte *>(given.send) + at;
        if (given.recv) call.recv = static_cast<std::byte *>(given.recv) + at;
        QCCL_TRY(each(i, call));
        at += layer.count * type_bytes(type);
    }
    return {};
}

} // namespace qccl
