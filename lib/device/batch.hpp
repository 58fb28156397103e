// What host and device share about GPU kernels: their names, the argument of a launch, and topk's
// scratch memory. Identical on host and device. X(name) stands for each kernel. `fold` combines any
// sources into values or codes, and `fold_exact` into sums that are rounded once. `encode` makes
// codes of one source of values. `measure` makes scales before either. `keep_error` adds the
// difference of two sources to its sink, and `add_velocity` a velocity. `shared_scales`,
// `shared_integers` and `shared_values` are the passes of the codec shared. The launches of topk
// follow each other, behind one that clears their sums. The last part of a name is the
// accumulator's type.
//
// A Batch is the argument of one launch: plain data, passed by value. KernelLauncher fills batches
// and the kernels read them.
//
// A launch folds: for each tensor the kernel reads the sources in order, combines them with the
// reduction operation and writes the result to a sink. Encoding folds one source of values into a
// chunk. Decoding folds one chunk into values.
//
// In the scratch memory the launches that encode a topk chunk leave data for the next launches.
//
// The threshold is found digit by digit, from the highest down. The histogram of a digit tells
// which digit the threshold has. The next histogram counts only magnitudes that have all of the
// threshold's digits so far. So that the first pass need not count every value, a sample gives a
// floor, and the first pass does not count digits below the floor. That pass also marks each octet
// that has a magnitude from the floor on, so that later passes read no other octets.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#define QCCL_KERNELS(X)                                                                            \
    X(fold_int8)                                                                                   \
    X(fold_uint8)                                                                                  \
    X(fold_int32)                                                                                  \
    X(fold_uint32)                                                                                 \
    X(fold_int64)                                                                                  \
    X(fold_uint64)                                                                                 \
    X(fold_float)                                                                                  \
    X(fold_double)                                                                                 \
    X(fold_int16)                                                                                  \
    X(fold_uint16)                                                                                 \
    X(fold_complex64)                                                                              \
    X(fold_complex128)                                                                             \
    X(fold_boolean)                                                                                \
    X(fold_float_int)                                                                              \
    X(fold_double_int)                                                                             \
    X(fold_long_int)                                                                               \
    X(fold_int_int)                                                                                \
    X(fold_short_int)                                                                              \
    X(fold_exact_float)                                                                            \
    X(fold_exact_double)                                                                           \
    X(fold_dithered_float)                                                                         \
    X(fold_dithered_double)                                                                        \
    X(fold_coded_float)                                                                            \
    X(fold_grouped_float)                                                                          \
    X(fold_grouped_double)                                                                         \
    X(encode_integer_float)                                                                        \
    X(encode_integer_double)                                                                       \
    X(encode_minmax_float)                                                                         \
    X(encode_minmax_double)                                                                        \
    X(encode_mxfp8e4m3_float)                                                                      \
    X(encode_mxfp8e4m3_double)                                                                     \
    X(encode_mxfp6e2m3_float)                                                                      \
    X(encode_mxfp6e2m3_double)                                                                     \
    X(encode_mxfp4_float)                                                                          \
    X(encode_mxfp4_double)                                                                         \
    X(encode_fp8_float)                                                                            \
    X(encode_fp8_double)                                                                           \
    X(encode_nvfp4_float)                                                                          \
    X(encode_nvfp4_double)                                                                         \
    X(encode_onebit_float)                                                                         \
    X(encode_onebit_double)                                                                        \
    X(encode_tbq_float)                                                                            \
    X(encode_tbq_double)                                                                           \
    X(encode_terngrad_float)                                                                       \
    X(encode_terngrad_double)                                                                      \
    X(encode_norm_float)                                                                           \
    X(encode_norm_double)                                                                          \
    X(measure_integer_float)                                                                       \
    X(measure_integer_double)                                                                      \
    X(measure_minmax_float)                                                                        \
    X(measure_minmax_double)                                                                       \
    X(measure_nvfp4_float)                                                                         \
    X(measure_nvfp4_double)                                                                        \
    X(measure_onebit_float)                                                                        \
    X(measure_onebit_double)                                                                       \
    X(measure_norm_float)                                                                          \
    X(measure_norm_double)                                                                         \
    X(measure_range_float)                                                                         \
    X(measure_range_double)                                                                        \
    X(clear_sums)                                                                                  \
    X(topk_sample_float)                                                                           \
    X(topk_sample_double)                                                                          \
    X(topk_first_float)                                                                            \
    X(topk_first_double)                                                                           \
    X(topk_digit_float)                                                                            \
    X(topk_digit_double)                                                                           \
    X(topk_count_float)                                                                            \
    X(topk_count_double)                                                                           \
    X(topk_write_float)                                                                            \
    X(topk_write_double)                                                                           \
    X(gpu_barrier)                                                                                 \
    X(keep_error_float)                                                                            \
    X(keep_error_double)                                                                           \
    X(add_velocity_float)                                                                          \
    X(add_velocity_double)                                                                         \
    X(shared_scales_float)                                                                         \
    X(shared_scales_double)                                                                        \
    X(shared_integers_float)                                                                       \
    X(shared_integers_double)                                                                      \
    X(shared_values_float)                                                                         \
    X(shared_values_double)

namespace qccl {

// ---- Kernels

enum class KernelId : uint8_t {
#define QCCL_KERNEL_ID(name) name,
    QCCL_KERNELS(QCCL_KERNEL_ID)
#undef QCCL_KERNEL_ID
};

inline constexpr std::string_view kernel_names[] = {
#define QCCL_KERNEL_NAME(name) #name,
    QCCL_KERNELS(QCCL_KERNEL_NAME)
#undef QCCL_KERNEL_NAME
};
inline constexpr size_t kernel_count = std::size(kernel_names);
constexpr std::string_view name(KernelId kernel) {
    return kernel_names[static_cast<size_t>(kernel)];
}

// ---- Batches

// The sections of a chunk's payload, in payload order. topk has none of the other codecs' sections,
// so its own sections use the first numbers. If no value is raw, `raw` is the payload's end.
enum class ChunkPart : uint8_t {
    plane8,
    plane4,
    plane2,
    plane1,
    digits,
    scales,
    bases,
    raw,
    page_counts = 0,
    indices,
    kept_values,
};
inline constexpr size_t chunk_parts = 8;

// Values in memory, or the coded values of a chunk, starting at `begin`.
struct Operand {
    CodecId codec = CodecId::none; // codes: their codec; none: contiguous plain values
    // Bits of a code. topk's scratch memory: number that tells launches of the same kernel apart.
    uint8_t bits = 0;
    // Plain sink: values beyond the type's largest value saturate, as a cast codec requires.
    bool saturates = false;
    // Sink: the scales are already in the payload; otherwise this launch computes them.
    bool is_measured = false;
    bool is_stochastic = false; // sink: rounds with noise
    bool is_dithered = false;   // sink: rounds with dither; source: noise() is to be subtracted
    bool rounds_up = false;   // sink: rounds scales of small floats up, so that no value saturates
    uint8_t bucket_shift = 0; // log2(bucket) if that is a whole number above 0, else 0
    bool is_linf = false;     // sink, norm: the norm is the largest magnitude
    bool is_exponential = false;       // norm: levels are powers of two
    uint8_t rotation_log2 = 0;         // log2 of the values that are rotated together; 0: none are
    DataType type = DataType::float32; // plain: type of the values
    // Values that share a scale; 0: all values. Plain: values of which one number is there, for
    // scales that are no part of a chunk; 0: each value is there.
    uint32_t bucket = 0;
    // sink, terngrad: clip limit, in thousandths of the deviation; tbq: the threshold's bits;
    // bound: the bound's bits; scales of shared: the largest integer of a rank
    uint32_t clip = 0;
    std::array<uint8_t, chunk_parts> gap{}; // sink: bytes to zero before each section
    std::byte *at = nullptr;                // plain: the first value; otherwise the chunk's payload
    uint64_t coded = 0;                     // codes: number of the chunk's values that have codes
    uint64_t kept = 0;                      // topk: number of those that the chunk keeps
    uint64_t begin = 0;                     // codes: index of the first value in its chunk
    std::array<uint64_t, chunk_parts> section{}; // codes: offset of each section in the payload

    constexpr bool is_plain() const { return codec == CodecId::none; }
    // Plain: returns how many numbers there are of so many values.
    constexpr uint64_t numbers_of(uint64_t values) const {
        return bucket == 0 ? values : (values + bucket - 1) / bucket;
    }
    // Plain sink: values are rounded to multiples of a step, which `clip` gives or has been
    // measured.
    constexpr bool has_grid() const { return is_plain() && (clip != 0 || is_measured); }
    constexpr bool is_rotated() const { return rotation_log2 != 0; }
    constexpr uint32_t rotation() const { return 1U << rotation_log2; }

    // The noise of a dithered source; first_index is that of the source's first value. A batch has
    // no room to spare, so the noise lies in fields that codecs with dither do not use: they have
    // neither digits nor bases, and keep all values.
    constexpr void set_noise(const Noise &noise) {
        kept = noise.key;
        section[static_cast<size_t>(ChunkPart::digits)] = noise.call;
        section[static_cast<size_t>(ChunkPart::bases)] = noise.first_index;
    }
    constexpr Noise noise() const {
        return {.key = kept,
                .call = section[static_cast<size_t>(ChunkPart::digits)],
                .first_index = section[static_cast<size_t>(ChunkPart::bases)]};
    }
};

struct Tensor {
    uint32_t first_source = 0, sources = 0; // in Batch::operand; the sink lies before the sources
    uint64_t count = 0;                     // values
    Noise noise; // first_index is that of the tensor's first value, not of its chunk's
};

// Threads per block of every launch, and the values that a block folds in one turn.
inline constexpr unsigned block_threads = 256;
inline constexpr uint64_t block_values = 4096;

struct Batch {
    static constexpr size_t most_tensors = 8, most_operands = 28;

    uint32_t tensors = 0;
    RedOp op = RedOp::sum;
    // Divides the result, for avg; keep_error: multiplies the error; add_velocity: the momentum in
    // thousandths.
    uint32_t divisor = 1;
    // Device memory with a call number that changes between replays of one launch. The kernel adds
    // it to the noise's call number. Null: nothing is added.
    const uint64_t *call = nullptr;
    // If set, the launch does nothing unless this word of device memory equals `awaited`.
    const uint64_t *awaited_word = nullptr;
    uint64_t awaited = 0;
    std::array<Tensor, most_tensors> tensor{};
    std::array<Operand, most_operands> operand{};
};
// Every driver passes this many bytes to a kernel by value.
static_assert(sizeof(Batch) <= 4096);

// ---- Scratch memory of topk

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
