// Counts symbols and rounds, writes and reads their frequencies.
#include "kernels/codec/frequencies.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {

namespace {

size_t set_bytes(unsigned bits) { return (size_t{1} << bits) / 8; }

} // namespace

// Several tables, so that equal symbols in a row do not wait for each other.
SymbolCounts count_symbols(const uint8_t *symbols, size_t count) {
    constexpr size_t tables = 8;
    uint32_t counts[tables][256] = {};
    size_t i = 0;
    for (; i + tables <= count; i += tables) {
        uint64_t eight;
        std::memcpy(&eight, symbols + i, sizeof eight);
        for (size_t t = 0; t < tables; t++) counts[t][eight >> 8 * t & 0xFF]++;
    }
    for (; i < count; i++) counts[0][symbols[i]]++;
    SymbolCounts sums{};
    for (const auto &table : counts)
        for (size_t s = 0; s < sums.size(); s++) sums[s] += table[s];
    return sums;
}

Frequencies rounded_frequencies(const SymbolCounts &counts, size_t total) {
    Frequencies frequencies{};
    uint32_t sum = 0;
    for (size_t s = 0; s < counts.size(); s++) {
        if (counts[s] == 0) continue;
        const uint64_t scaled = uint64_t{counts[s]} * probability_sum + total / 2;
        frequencies[s] = std::max<uint32_t>(1, static_cast<uint32_t>(scaled / total));
        sum += frequencies[s];
    }
    // Rounding has given the sum too little, which the most frequent symbol gets, or too much,
    // which the most frequent ones give.
    while (sum != probability_sum) {
        uint32_t &most = *std::max_element(frequencies.begin(), frequencies.end());
        if (sum < probability_sum) {
            most += probability_sum - sum;
            sum = probability_sum;
        } else {
            const uint32_t taken = std::min(sum - probability_sum, (most + 7) / 8);
            most -= taken;
            sum -= taken;
        }
    }
    return frequencies;
}

size_t write_frequencies(const Frequencies &frequencies, unsigned bits, std::byte *dst) {
    uint8_t bytes[most_frequency_bytes + part_alignment] = {};
    size_t nibble = 2 * set_bytes(bits);
    for (size_t s = 0; s < size_t{1} << bits; s++) {
        if (frequencies[s] == 0) continue;
        bytes[s / 8] |= static_cast<uint8_t>(1U << s % 8);
        for (uint32_t rest = frequencies[s] - 1, more = 1; more != 0; rest >>= 3) {
            more = rest > 7 ? 8 : 0;
            bytes[nibble / 2] |= static_cast<uint8_t>(((rest & 7) | more) << 4 * (nibble % 2));
            nibble++;
        }
    }
    const size_t size = aligned((nibble + 1) / 2);
    std::memcpy(dst, bytes, size);
    return size;
}

size_t read_frequencies(std::span<const std::byte> src, unsigned bits, Frequencies &frequencies) {
    const auto nibble_at = [src](size_t at) -> uint32_t {
        return std::to_integer<uint32_t>(src[at / 2]) >> 4 * (at % 2) & 15;
    };
    if (src.size() < set_bytes(bits)) return 0;
    size_t nibble = 2 * set_bytes(bits);
    uint32_t sum = 0;
    for (size_t s = 0; s < size_t{1} << bits; s++) {
        frequencies[s] = 0;
        if ((std::to_integer<uint32_t>(src[s / 8]) >> s % 8 & 1) == 0) continue;
        uint32_t rest = 0, digits = 8;
        for (unsigned shift = 0; (digits & 8) != 0; shift += 3) {
            if (nibble / 2 >= src.size() || shift > 9) return 0;
            digits = nibble_at(nibble++);
            if (digits == 0 && shift != 0) return 0; // a shorter form says the same
            rest |= (digits & 7) << shift;
        }
        frequencies[s] = rest + 1;
        sum += frequencies[s];
    }
    const size_t size = aligned((nibble + 1) / 2);
    if (sum != probability_sum || size > src.size()) return 0;
    for (; nibble < 2 * size; nibble++)
        if (nibble_at(nibble) != 0) return 0;
    for (const uint32_t frequency : frequencies)
        if (frequency == probability_sum) return 0; // it would be a constant
    return size;
}

void make_encoder_table(const Frequencies &frequencies, uint32_t *table) {
    uint32_t start = 0;
    for (size_t s = 0; s < frequencies.size(); s++) {
        table[s] = encoder_entry(frequencies[s], start);
        start += frequencies[s];
    }
}

void make_decoder_table(const Frequencies &frequencies, unsigned bits, uint32_t *table) {
    for (uint32_t s = 0; s < 1U << bits; s++) {
        const uint32_t frequency = frequencies[s];
        uint32_t entry = frequency == 0 ? 0 : decoder_entry(s, frequency, 0);
        for (uint32_t i = 0; i < frequency; i++, entry += decoder_entry(0, 1, 1)) *table++ = entry;
    }
}

} // namespace qccl
