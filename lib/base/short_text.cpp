// Hashes and shortens texts.
#include "base/short_text.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>

namespace qccl {

uint64_t hash_text(std::string_view text) {
    uint64_t hash = 0xCBF29CE484222325; // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    return hash;
}

std::string shortened(std::string_view text, size_t room) {
    if (text.size() <= room) return std::string(text);
    std::array<char, 18> hash{}; // "~", 16 digits, 0
    std::snprintf(hash.data(), hash.size(), "~%016" PRIx64, hash_text(text));
    return std::string(text.substr(0, room - (hash.size() - 1))) + hash.data();
}

} // namespace qccl
