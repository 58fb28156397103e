// Texts for fields of fixed size, in which ranks compare them. Knows not what they say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qccl {

// The same on every rank, whatever its standard library.
uint64_t hash_text(std::string_view text);

// The text as it is if it has at most `room` characters (17 or more); else its beginning and a hash
// of it all, `room` characters together.
std::string shortened(std::string_view text, size_t room);

} // namespace qccl
