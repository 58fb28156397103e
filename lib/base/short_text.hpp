// Fits texts into fields of fixed size that ranks compare. Pure; any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

// Returns the same hash on every rank, whatever its standard library.
uint64_t hash_text(std::string_view text);

// Returns the text unchanged if it has at most `room` characters (17 or more); else its beginning
// and a hash of the whole text, `room` characters together.
std::string shortened(std::string_view text, size_t room);

} // namespace qccl
