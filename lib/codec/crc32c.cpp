// Slicing by eight: eight independent table look-ups process eight bytes.
#include "codec/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little);

namespace qccl {
namespace {

constexpr uint32_t castagnoli = 0x82F63B78; // the polynomial, lowest power in the highest bit
constexpr size_t slices = 8;

using SliceTables = std::array<std::array<uint32_t, 256>, slices>;

// tables[k][b]: the contribution of byte b if k more bytes of the slice follow it.
constexpr SliceTables make_tables() {
    SliceTables tables{};
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ ((crc & 1) != 0 ? castagnoli : 0);
        tables[0][b] = crc;
    }
    for (size_t k = 1; k < slices; k++)
        for (size_t b = 0; b < 256; b++)
            tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 0xFF];
    return tables;
}

constexpr SliceTables tables = make_tables();

uint32_t octet(std::byte b) { return std::to_integer<uint32_t>(b); }

} // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t crc) {
    crc = ~crc;
    size_t at = 0;
    for (; at + slices <= bytes.size(); at += slices) {
        uint64_t slice; // its first byte lowest, as in the header and everywhere on the wire
        std::memcpy(&slice, bytes.data() + at, sizeof slice);
        slice ^= crc;
        crc = 0;
        for (size_t i = 0; i < slices; i++) crc ^= tables[slices - 1 - i][slice >> 8 * i & 0xFF];
    }
    for (; at < bytes.size(); at++) crc = crc >> 8 ^ tables[0][(crc ^ octet(bytes[at])) & 0xFF];
    return ~crc;
}

} // namespace qccl
