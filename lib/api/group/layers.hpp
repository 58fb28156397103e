// The layers of an all-reduce whose config lists some: the list's checks, and the call that each
// layer is. CallGroup makes these calls as those of a group. Pure but for the lookup of codecs; any
// thread may call, and nothing blocks.
#pragma once

#include "api/call/collective_call.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

namespace qccl {

// Whether the call is one of layers. The config need not be valid. Every call asks, and most have
// no config.
bool lists_layers(const CallArguments &with_config);
inline bool has_layers(const CallArguments &given) { return given.config && lists_layers(given); }

// Does something with the call of layer `number`, whose arguments are gone afterwards.
using EachLayer = std::function<Done(size_t number, const CallArguments &layer)>;

// Checks the list against the call that has it, and calls each(...) for every layer, in order.
// After an error of the list (invalid_argument, invalid_usage) it has called nothing; an error of
// each(...) ends it. Errors name the layer.
Done split_into_layers(const CallArguments &given, const EachLayer &each);

// Returns the error with the layer's name before its sentence.
Error of_layer(size_t number, const Error &error);

// Returns a hash of the layers' counts, which ranks compare; never 0. The list has been checked.
uint32_t hash_layers(const CallArguments &given);

} // namespace qccl
