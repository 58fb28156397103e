// The layout of the scratch memory in which the launches that encode a topk chunk leave data for
// the next launches. Host and device use the same layout.
//
// The threshold is found digit by digit, from the highest down. The histogram of a digit tells
// which digit the threshold has. The next histogram counts only magnitudes that have all of the
// threshold's digits so far. So that the first pass need not count every value, a sample gives a
// floor, and the first pass does not count digits below the floor. That pass also marks each octet
// that has a magnitude from the floor on, so that later passes read no other octets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qccl {

inline constexpr unsigned digit_bits = 11, digit_bins = 1U << digit_bits;
// One row in so many is in the sample. A row is an octet for each lane of a warp.
inline constexpr uint64_t sample_step = 64;

// Values that a block compacts at a time; a page has a whole number of tiles. Where few octets are
// marked, a thread has many to pass over, and few of its loads wait one after the other.
inline constexpr uint64_t tile_values = 16384, page_tiles = 4;

// The digits of the magnitudes of a type, the highest first.
struct MagnitudeDigits {
    unsigned bits; // of a magnitude: all but the sign

    constexpr explicit MagnitudeDigits(size_t value_bytes)
        : bits(static_cast<unsigned>(8 * value_bytes - 1)) {}
    constexpr unsigned count() const { return (bits + digit_bits - 1) / digit_bits; }
    // Returns how many bits are behind the first `digits` digits.
    constexpr unsigned behind(unsigned digits) const {
        return bits > digits * digit_bits ? bits - digits * digit_bits : 0;
    }
    constexpr unsigned width(unsigned digit) const { return behind(digit) - behind(digit + 1); }
};

// topk keeps the magnitudes above the threshold, and the first `ties` of those that equal it. While
// digits are missing, `magnitude` has only the known digits.
struct TopkThreshold {
    uint64_t magnitude, ties;
};

// Offsets in bytes from the start of the scratch memory. The start and all offsets are multiples of
// 16.
struct TopkScratch {
    MagnitudeDigits digits;
    uint64_t pages, tiles;

    constexpr TopkScratch(size_t value_bytes, uint64_t count)
        : digits(value_bytes), pages((count + page_values - 1) / page_values),
          tiles((count + tile_values - 1) / tile_values) {}

    // Sums, which begin at zero: the sample's histogram, each digit's histogram, and for each page
    // how many magnitudes are above the threshold (low half) and how many equal it.
    constexpr uint64_t sample() const { return 0; }
    constexpr uint64_t histogram(unsigned digit) const {
        return (digit + 1) * uint64_t{digit_bins} * sizeof(uint64_t);
    }
    constexpr uint64_t page_sums() const { return histogram(digits.count()); }
    constexpr uint64_t sums_end() const { return aligned(page_sums() + pages * sizeof(uint64_t)); }
    // The threshold as known after each digit.
    constexpr uint64_t threshold(unsigned digit) const {
        return sums_end() + digit * sizeof(TopkThreshold);
    }
    // The same counts as for a page, for each tile, with 16 bits each.
    constexpr uint64_t tile_sums() const { return threshold(digits.count()); }
    // One bit for each octet.
    constexpr uint64_t marks() const { return aligned(tile_sums() + tiles * sizeof(uint32_t)); }
    constexpr uint64_t bytes() const { return marks() + tiles * (tile_values / 64); }

private:
    static constexpr uint64_t page_values = page_tiles * tile_values;
    static constexpr uint64_t aligned(uint64_t at) { return (at + 15) / 16 * 16; }
};

} // namespace qccl
