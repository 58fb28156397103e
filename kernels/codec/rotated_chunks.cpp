// Implements rotated_chunks.hpp. Values are rotated in the precision in which the codec computes:
// fp32, but fp64 for minmax on fp64 tensors, which the scalar transform rotates on every tier.
#include "kernels/codec/rotated_chunks.hpp"

#include "kernels/codec/reference.hpp"
#include "kernels/codec/rotation.hpp"

namespace qccl {
namespace {

// Values at a time. Whole rotated blocks and whole buckets of all sizes.
constexpr uint64_t piece_values = 2048;
static_assert(piece_values % most_rotation == 0);

// The coded values of a range, a piece at a time, as of a codec that does not rotate.
class RotatedRange {
public:
    explicit RotatedRange(const ChunkRange &range)
        : codec_(*range.codec), range_(range), rotation_(codec_.rotation),
          coded_(coded_end(range) - range.begin) {
        codec_.rotation = 0;
        range_.codec = &codec_;
    }
    RotatedRange(const RotatedRange &) = delete;
    RotatedRange &operator=(const RotatedRange &) = delete;

    uint32_t rotation() const { return rotation_; }
    uint64_t coded() const { return coded_; }
    DataType type() const {
        const bool is_wide =
            codec_.row().kind == CodecKind::minmax && range_.type == DataType::float64;
        return is_wide ? DataType::float64 : DataType::float32;
    }
    // Calls visit(part, at): `at` counts from the range's start.
    template <class Visitor> void each_piece(Visitor &&visit) const {
        for (uint64_t at = 0; at < coded_; at += piece_values)
            visit(part(at, std::min(piece_values, coded_ - at)), at);
    }
    // The values behind the coded ones, which travel as they are.
    ChunkRange rest() const { return part(coded_, range_.count - coded_); }

private:
    ChunkRange part(uint64_t at, uint64_t count) const {
        ChunkRange piece = range_;
        piece.begin += at;
        piece.count = count;
        return piece;
    }

    Codec codec_;
    ChunkRange range_;
    uint32_t rotation_;
    uint64_t coded_;
};

// Memory for a piece of either precision.
struct alignas(64) PieceMemory {
    std::byte bytes[piece_values * sizeof(double)];

    float *floats() { return reinterpret_cast<float *>(bytes); }
    double *doubles() { return reinterpret_cast<double *>(bytes); }
};

void rotate_scalar(uint32_t d, const float *src, float *dst, uint64_t count) {
    if (src != dst) std::copy_n(src, count, dst);
    rotate_blocks(d, dst, count);
}

void rotate_back_scalar(uint32_t d, const float *src, float *dst, uint64_t count, bool adds) {
    float values[piece_values];
    std::copy_n(src, count, values);
    rotate_blocks_back(d, values, count);
    for (uint64_t i = 0; i < count; i++) dst[i] = adds ? canonical(dst[i] + values[i]) : values[i];
}

// Where fp32 is rotated back: to values of that type at once, or in the piece's memory.
enum class BackTo : uint8_t { values, added_to_values, piece };

// Decodes a range's pieces. Calls finish(values, piece, count) for what is in a piece's memory
// then.
template <class Finish>
void decode_pieces(const RotationSteps &steps, const RotatedRange &rotated,
                   const std::byte *payload, BackTo to, DataType out, void *values,
                   const Finish &finish) {
    const DataType type = rotated.type();
    const uint32_t d = rotated.rotation();
    if (out != type) to = BackTo::piece;
    PieceMemory piece;
    rotated.each_piece([&](const ChunkRange &part, uint64_t at) {
        std::byte *const dst = behind(values, out, at);
        steps.decode(part, payload, type, piece.bytes, false);
        if (type == DataType::float64)
            rotate_blocks_back(d, piece.doubles(), part.count);
        else if (to == BackTo::piece)
            steps.rotate_back(d, piece.floats(), piece.floats(), part.count, false);
        else
            return steps.rotate_back(d, piece.floats(), reinterpret_cast<float *>(dst), part.count,
                                     to == BackTo::added_to_values);
        finish(dst, piece.bytes, part.count);
    });
}

} // namespace

RotationSteps scalar_rotation_steps() {
    const Kernels &kernels = scalar_kernels();
    return {.encode = kernels.encode,
            .decode = kernels.decode,
            .decode_add = kernels.decode_add,
            .reduce = kernels.reduce,
            .copy = kernels.copy,
            .rotate = rotate_scalar,
            .rotate_back = rotate_back_scalar};
}

void encode_rotated(const RotationSteps &steps, const ChunkRange &range, const Noise &noise,
                    DataType in, const void *src, std::byte *payload) {
    const RotatedRange rotated(range);
    const DataType type = rotated.type();
    const uint32_t d = rotated.rotation();
    PieceMemory piece;
    rotated.each_piece([&](const ChunkRange &part, uint64_t at) {
        const std::byte *const values = behind(src, in, at);
        if (type == DataType::float64) {
            steps.copy(type, piece.bytes, in, values, part.count, false);
            rotate_blocks(d, piece.doubles(), part.count);
        } else if (in == type) {
            steps.rotate(d, reinterpret_cast<const float *>(values), piece.floats(), part.count);
        } else {
            steps.copy(type, piece.bytes, in, values, part.count, false);
            steps.rotate(d, piece.floats(), piece.floats(), part.count);
        }
        steps.encode(part, noise, type, piece.bytes, payload);
    });
    const ChunkRange rest = rotated.rest();
    if (rest.count != 0 || rotated.coded() == 0)
        steps.encode(rest, noise, in, behind(src, in, rotated.coded()), payload);
}

void decode_rotated(const RotationSteps &steps, const ChunkRange &range, const std::byte *payload,
                    DataType out, void *dst, bool streams) {
    const RotatedRange rotated(range);
    decode_pieces(steps, rotated, payload, streams ? BackTo::piece : BackTo::values, out, dst,
                  [&](std::byte *to, const std::byte *piece, uint64_t count) {
                      steps.copy(out, to, rotated.type(), piece, count, streams);
                  });
    const ChunkRange rest = rotated.rest();
    if (rest.count != 0)
        steps.decode(rest, payload, out, behind(dst, out, rotated.coded()), streams);
}

void decode_add_rotated(const RotationSteps &steps, const ChunkRange &range, RedOp op,
                        const std::byte *payload, void *accumulator) {
    const RotatedRange rotated(range);
    const DataType sum_type = accumulator_of(range.type);
    decode_pieces(steps, rotated, payload, adds(op) ? BackTo::added_to_values : BackTo::piece,
                  sum_type, accumulator,
                  [&](std::byte *sums, const std::byte *piece, uint64_t count) {
                      steps.reduce(op, sum_type, sums, rotated.type(), piece, count);
                  });
    const ChunkRange rest = rotated.rest();
    if (rest.count != 0)
        steps.decode_add(rest, op, payload, behind(accumulator, sum_type, rotated.coded()));
}

} // namespace qccl
