// The scalar reference of the MX codecs. Called through their CodecFamily.
#include "kernels/mx_block.hpp"
#include "kernels/reference_family.hpp"

namespace qccl {
namespace {

// Calls f with a value of the element's format.
template <class Call> void with_element(CodecId id, Call &&call) {
    switch (id) {
    case CodecId::mxfp8e4m3: return call(E4m3{});
    case CodecId::mxfp6e2m3: return call(E2m3{});
    default: return call(E2m1{});
    }
}

template <class F>
void encode_as(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
               std::byte *payload) {
    const uint64_t first = range.begin, end = coded_end(range), block = range.codec->bucket;
    const bool rounds_up = range.codec->scaling == Scaling::ceil;
    MxScale scale;
    encode_groups(range, payload, [&](uint64_t i) {
        if (i % block == 0) {
            scale = mx_scale<F>(
                largest_magnitude(in, src, i - first, std::min(i + block, end) - first), rounds_up);
            store_bits(payload + range.layout->scales, i / block, scale.wire);
        }
        return mx_code<F>(block_input(in, src, i - first), scale, draw_of(range, noise, i));
    });
}

void encode(const ChunkRange &range, const Noise &noise, DataType in, const void *src,
            std::byte *payload) {
    with_element(range.codec->id,
                 [&]<class F>(F) { encode_as<F>(range, noise, in, src, payload); });
}

void decode(const ChunkRange &range, const std::byte *payload, uint64_t first, size_t count,
            double *values) {
    const std::byte *scales = payload + range.layout->scales;
    with_element(range.codec->id, [&]<class F>(F) {
        for (size_t i = 0; i < count; i++)
            values[i] = mx_value<F>(read_code(range, payload, first + i),
                                    load_bits<uint8_t>(scales, (first + i) / range.codec->bucket));
    });
}

} // namespace

const CodecFamily mx_family{.encode = encode, .decode = decode};

} // namespace qccl
