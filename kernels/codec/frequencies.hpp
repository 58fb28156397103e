// How often the symbols of a packed stream occur: counted, rounded to a sum that rANS codes with,
// written and read (WIRE.md, "Packed payloads"), and as the tables that the steps of packing.hpp
// use. Everything here is pure.
#pragma once

#include "kernels/codec/packing.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace qccl {

// Of each symbol: how often it occurs in a stream, and of probability_sum.
using SymbolCounts = std::array<uint32_t, 256>;
using Frequencies = std::array<uint32_t, 256>;

SymbolCounts count_symbols(const uint8_t *symbols, size_t count);

// Rounds counts to frequencies that add up to probability_sum. A symbol that occurs has at least 1.
// At least two symbols must occur.
Frequencies rounded_frequencies(const SymbolCounts &counts, size_t total);

// As they travel: a set of the symbols that occur, and for each of them its frequency less 1, three
// bits at a time from the lowest up, of which the fourth bit says that more follow. `bits` is the
// length of a symbol.
inline constexpr size_t most_frequency_bytes = 256 / 8 + 256 * 4 / 2;

// Writes at most most_frequency_bytes + part_alignment bytes, and returns their number.
size_t write_frequencies(const Frequencies &frequencies, unsigned bits, std::byte *dst);

// Returns the number of bytes, or 0 if no encoder writes them.
size_t read_frequencies(std::span<const std::byte> src, unsigned bits, Frequencies &frequencies);

// The rows of all symbols, and the entries of all probability_sum slots.
void make_encoder_table(const Frequencies &frequencies, uint32_t *table);
void make_decoder_table(const Frequencies &frequencies, unsigned bits, uint32_t *table);

} // namespace qccl
