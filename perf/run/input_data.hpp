// The input of every rank, generated from a seed or read from .npy files. Every rank can read any
// range of any rank's input, so that each can check its share of a result. Used by qccl-perf and
// qccl-info. Any thread may read; only opening a file blocks.
//
// Values of any type become numbers for calculations and back: reals as double, all others as
// int64_t (unsigned 64-bit values keep their bits; a pair has its value in units of 2^-12 above its
// index); complex values are twice as many reals. This is not optimized for speed. Random-looking
// numbers are computed from a counter: the same everywhere, in any order of use. A .npy file as
// NumPy writes it is read-only, memory-mapped and treated as one-dimensional; its types are those
// that QCCL supports, and all others are refused by name.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numbers>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qccl::perf {

// ---- Values as numbers

constexpr bool has_reals(DataType type) { return info(real_type(type)).is_float; }

// `type` is the type of reals.
void load_reals(DataType type, const std::byte *src, size_t count, double *dst);
// Rounds once, to nearest even.
void store_reals(DataType type, const double *src, size_t count, std::byte *dst);

// `type` is a type without reals. A pair's value is a multiple of 2^-12 below 2^18, or wrapped to
// that range, and its index is not negative.
// pair_steps_of returns the value alone.
constexpr int64_t pair_steps_of(int64_t pair) { return pair >> 32; }
void load_integers(DataType type, const std::byte *src, size_t count, int64_t *dst);
void store_integers(DataType type, const int64_t *src, size_t count, std::byte *dst);

// Returns half the distance between 1 and the next value, which is the largest relative change by
// one rounding; 0 for integers.
double unit_roundoff(DataType type);
// Returns the smallest positive number of the type; 0 for integers.
double smallest_step(DataType type);

// ---- Random numbers

// Returns two independent Gaussian values of variance 1 (Box and Muller).
inline std::array<float, 2> gaussian_pair(uint64_t key, uint64_t index) {
    const uint64_t bits = splitmix64(key + index);
    constexpr float unit = 0x1p-32F;
    const float u = (static_cast<float>(bits >> 32) + 0.5F) * unit; // never 0
    const float angle =
        2 * std::numbers::pi_v<float> * static_cast<float>(bits & 0xFFFFFFFFU) * unit;
    const float radius = std::sqrt(-2 * std::log(u));
    return {radius * std::cos(angle), radius * std::sin(angle)};
}

inline float gaussian(uint64_t key, uint64_t index) {
    return gaussian_pair(key, index / 2)[index % 2];
}

// ---- .npy files

struct NpyHeader {
    DataType type = DataType::float32;
    uint64_t count = 0;
    size_t data_offset = 0;
};

// Parses the header at the start of a file of `file_bytes` bytes; `start` holds the first bytes of
// the file. Trusts none of the bytes.
Result<NpyHeader> parse_npy(std::span<const std::byte> start, uint64_t file_bytes);

class Npy {
public:
    static Result<Npy> open(const std::string &path);
    Npy(Npy &&other) noexcept;
    Npy &operator=(Npy &&) = delete;
    ~Npy();

    DataType type() const { return header_.type; }
    uint64_t count() const { return header_.count; }
    // Aligned to at least 16 bytes in a file that follows the format; in other files possibly
    // unaligned.
    const std::byte *data() const { return memory_ + header_.data_offset; }

private:
    Npy(const std::byte *memory, size_t bytes, const NpyHeader &header)
        : memory_(memory), bytes_(bytes), header_(header) {}

    const std::byte *memory_;
    size_t bytes_;
    NpyHeader header_;
};

// Replaces every "%r" by the rank.
std::string path_of_rank(std::string_view pattern, uint32_t rank);
// Returns the number of files that exist for ranks 0, 1 and so on, up to the first that is missing.
// The pattern has "%r".
uint32_t count_files(std::string_view pattern);

// ---- Inputs of the ranks

class Source {
public:
    virtual ~Source() = default;
    // Reads elements [first, first + count) of the input of `rank` into `dst`.
    virtual void read(uint32_t rank, DataType type, uint64_t first, size_t count,
                      std::byte *dst) const = 0;
    // Sums of up to this many ranks are exact in any order; 1 if they are not.
    virtual uint32_t exact_ranks(DataType type) const = 0;
};

// Returns Gaussian values of variance 1, independent between ranks and elements; small integers for
// integer types, truth values, and pairs of few values and few indices. fp32 and fp64 values are
// multiples of 2^-12 below 8, so that 256 of them add up exactly in any order, and a lossless sum
// can be compared bit for bit. The same seed gives the same data.
std::unique_ptr<Source> make_gaussian(uint64_t seed);

// Returns a note about an input pattern that has no placeholder for the rank; of one that has it,
// nothing.
std::string one_file_note(std::string_view pattern);

// Reads one file per rank; all files hold the same number of values of one type.
class Files final : public Source {
public:
    static Result<std::unique_ptr<Files>> open(std::string_view pattern, uint32_t ranks);

    DataType type() const { return files_.front().type(); }
    uint64_t count() const { return files_.front().count(); }
    void read(uint32_t rank, DataType type, uint64_t first, size_t count,
              std::byte *dst) const override;
    uint32_t exact_ranks(DataType) const override { return 1; }

private:
    explicit Files(std::vector<Npy> files) : files_(std::move(files)) {}
    std::vector<Npy> files_;
};

} // namespace qccl::perf
