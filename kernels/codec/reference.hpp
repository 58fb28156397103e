// The scalar reference: the kernels that define the bytes. Slow; whatever else computes codecs is
// compared with it. The second part is for the reference's own files: the interface to each kind of
// codec, and what these kinds share (loading elements one at a time, and codes in their planes).
// Any thread may call.
#pragma once

#include "device/exact_sum.hpp"
#include "device/kernels.hpp"
#include "kernels/codec/code_rounding.hpp"
#include "kernels/codec/combine.hpp"
#include "kernels/codec/number.hpp"

#include <algorithm>
#include <array>

namespace qccl {

const Kernels &scalar_kernels();

// Returns a double that store_float rounds to the result of an exact sum.
inline double exact_result(const LongAccumulator &sum, DataType out, uint32_t ranks) {
    if (ranks != 1) return divided(sum.rounded(), ranks);
    return out == DataType::float64 ? sum.rounded() : sum.rounded_to_odd();
}

// ---- Kinds of codecs

// Encodes and decodes the elements of a range that have codes.
struct CodecFamily {
    // Encodes from the range's first value on, which `src` points to.
    void (*encode)(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
                   std::byte *payload);
    // Decodes elements [first, first + count) of the chunk. Results that the codec computes in fp32
    // are stored exactly.
    void (*decode)(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
                   double *values);
};
extern const CodecFamily integer_family, minmax_family, mx_family, scaled_family, nvfp4_family,
    onebit_family, terngrad_family, topk_family, norm_family, tbq_family;

// Returns the end of the range's elements that have codes; those behind them are sent as values.
inline uint64_t coded_end(const ChunkRange &range) {
    return std::clamp(range.layout->coded, range.begin, range.begin + range.count);
}

inline uint64_t bucket_values(const ChunkRange &range) {
    return range.codec->bucket == Codec::whole_chunk ? range.whole : range.codec->bucket;
}

inline Draw draw_of(const ChunkRange &range, const Noise &noise, uint64_t element) {
    if (!range.codec->draws_noise()) return {};
    return {noise_draw(noise.key, noise.call, noise.first_index + element), range.codec->dithers()};
}

// Loads an element for a codec that computes in fp32. A double beyond fp32 becomes an infinity.
inline float block_input(DataType in, const void *src, uint64_t i) {
    return narrow_to_float(load_float(in, src, i));
}

// Returns the bit pattern of the largest magnitude: as patterns, infinities and NaN are above all
// numbers.
inline uint32_t largest_magnitude(DataType in, const void *src, uint64_t begin, uint64_t end) {
    uint32_t largest = 0;
    for (uint64_t i = begin; i < end; i++)
        largest = std::max(largest, std::bit_cast<uint32_t>(block_input(in, src, i)) & 0x7FFFFFFF);
    return largest;
}

using GroupCodes = std::array<uint32_t, group_values>;
void write_group(const ChunkRange &range, std::byte *payload, uint64_t group,
                 const GroupCodes &codes);
uint32_t read_code(const ChunkRange &range, const std::byte *payload, uint64_t element);

// Fills the groups of the range with the results of `code(element)`, called in order.
template <class Code> void encode_groups(const ChunkRange &range, std::byte *payload, Code &&code) {
    const uint64_t end = coded_end(range);
    for (uint64_t start = range.begin; start < end; start += group_values) {
        GroupCodes codes{};
        const uint64_t stop = std::min(start + group_values, end);
        for (uint64_t i = start; i < stop; i++) codes[i - start] = code(i);
        write_group(range, payload, start / group_values, codes);
    }
}

} // namespace qccl
