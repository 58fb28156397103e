// The scalar reference of `topk`. The threshold is found digit by digit, from the highest down.
// Called through its CodecFamily.
#include "kernels/reference_family.hpp"

namespace qccl {
namespace {

constexpr uint64_t page = topk_page_values;

// Returns the bit pattern of a value in the tensor's type, NaN canonical.
uint64_t pattern_of(DataType type, DataType in, const void *src, uint64_t i) {
    uint64_t pattern = 0;
    store_float(type, &pattern, 0, load_float(in, src, i));
    return pattern;
}

// Returns the magnitude's bits. They order infinities above all numbers, and NaN above infinities.
uint64_t magnitude_of(DataType type, uint64_t pattern) {
    return pattern & ((uint64_t{1} << (8 * type_bytes(type) - 1)) - 1);
}

// topk keeps the magnitudes above the threshold, and the first `ties` of those that equal it.
struct Threshold {
    uint64_t magnitude = 0, ties = 0;
};

Threshold find_threshold(const ChunkRange &range, DataType in, const void *src) {
    Threshold found{.magnitude = 0, .ties = range.layout->kept};
    for (unsigned digit = static_cast<unsigned>(type_bytes(range.type)); digit-- > 0;) {
        uint64_t numbers[256] = {};
        const unsigned shift = 8 * digit;
        for (uint64_t i = 0; i < range.count; i++) {
            const uint64_t magnitude =
                magnitude_of(range.type, pattern_of(range.type, in, src, i)) >> shift;
            if (magnitude >> 8 == found.magnitude) numbers[magnitude & 255]++;
        }
        uint64_t value = 255;
        for (; numbers[value] < found.ties; value--) found.ties -= numbers[value];
        found.magnitude = found.magnitude << 8 | value;
    }
    return found;
}

// The range must be the whole chunk.
void encode(const ChunkRange &range, const Noise &, DataType in, const void *src,
            std::byte *payload) {
    const PayloadLayout &layout = *range.layout;
    Threshold left = find_threshold(range, in, src);
    uint64_t kept = 0;
    for (uint64_t begin = 0; begin < range.count; begin += page) {
        const uint64_t before = kept;
        for (uint64_t i = begin; i < std::min(begin + page, range.count); i++) {
            const uint64_t pattern = pattern_of(range.type, in, src, i),
                           magnitude = magnitude_of(range.type, pattern);
            if (magnitude < left.magnitude) continue;
            if (magnitude == left.magnitude) {
                if (left.ties == 0) continue;
                left.ties--;
            }
            store_bits(payload + layout.indices, kept, static_cast<uint16_t>(i - begin));
            std::memcpy(payload + layout.kept_values + kept * type_bytes(range.type), &pattern,
                        type_bytes(range.type));
            kept++;
        }
        store_bits(payload + layout.page_counts, begin / page,
                   static_cast<uint32_t>(kept - before));
    }
}

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
            double *values) {
    const PayloadLayout &layout = *range.layout;
    const auto count_of = [&](uint64_t at) {
        return load_bits<uint32_t>(payload + layout.page_counts, at);
    };
    const auto index = [&](uint64_t at) {
        return load_bits<uint16_t>(payload + layout.indices, at);
    };
    std::fill_n(values, count, 0.0);
    uint64_t kept = 0;
    for (uint64_t i = 0; i < first / page; i++) kept += count_of(i);
    const uint64_t end = first + count;
    for (uint64_t begin = first / page * page; begin < end; begin += page) {
        const uint64_t stop = kept + count_of(begin / page);
        // Finds the first kept value of the page that is not before the range.
        uint64_t low = kept, high = stop;
        while (low < high) {
            const uint64_t middle = (low + high) / 2;
            if (begin + index(middle) < first)
                low = middle + 1;
            else
                high = middle;
        }
        for (; low < stop && begin + index(low) < end; low++)
            values[begin + index(low) - first] =
                load_float(range.type, payload + layout.kept_values, low);
        kept = stop;
    }
}

} // namespace

const CodecFamily topk_family{.encode = encode, .decode = decode};

} // namespace qccl
