// Runs steps over tiles with the host's kernels, and streams tiles that were encoded in scratch
// memory to the outbox.
#include "engine/compile/ops.hpp"

#include "codec/chunk.hpp"

#include <algorithm>
#include <optional>

namespace qccl {
namespace {

// A part of a chunk. Steps with scratch encode it as a chunk of its own.
struct Tile {
    uint64_t begin = 0, count = 0;
    const PayloadLayout *layout = nullptr; // as a chunk of its own; set if a step has scratch
};

ChunkRange range_of(const TileContext &context, const TileStep &step, const Tile &tile) {
    return {.codec = step.codec ? step.codec : context.codec,
            .layout = step.layout ? step.layout : context.layout,
            .type = context.type,
            .whole = context.count,
            .begin = tile.begin,
            .count = tile.count,
            .noise = step.noise};
}

// Returns the noise of a tile that is a chunk of its own.
Noise noise_alone(const TileStep &step, const Tile &tile) {
    Noise noise = step.noise;
    noise.first_index += tile.begin;
    return noise;
}

ChunkRange alone(const TileContext &context, const TileStep &step, const Tile &tile) {
    return {.codec = context.codec,
            .layout = tile.layout,
            .type = context.type,
            .whole = tile.count,
            .begin = 0,
            .count = tile.count,
            .noise = noise_alone(step, tile)};
}

// Moves the payload of a tile that was encoded as a chunk of its own to its positions in the whole
// chunk, past the cache.
void stream_payload(const TileContext &context, const Tile &tile, const std::byte *scratch,
                    std::byte *payload) {
    const Codec &codec = *context.codec;
    const auto move = [&](size_t from, size_t to, size_t bytes) {
        context.kernels->copy(DataType::uint8, payload + to, DataType::uint8, scratch + from, bytes,
                              true);
    };
    if (codec.row().takes(SpecKey::ratio) || codec.is_relative) // the tile is the chunk
        return move(0, 0, tile.layout->bytes);
    if (codec.is_plain()) {
        const size_t value_bytes = type_bytes(codec.plain_type(context.type));
        return move(0, tile.begin * value_bytes, tile.count * value_bytes);
    }
    for (const PayloadSection &section : PayloadSections(codec, context.layout->coded))
        move(tile.layout->*section.start,
             context.layout->*section.start + section.bytes(tile.begin),
             section.bytes(tile.layout->coded));
    if (tile.begin + tile.count != context.count) return;
    move(tile.layout->raw, context.layout->raw,
         (tile.count - tile.layout->coded) * type_bytes(context.type));
    clear_gaps(codec, *context.layout, payload);
}

void encode(const TileContext &context, const TileStep &step, const Tile &tile,
            const std::byte *src) {
    if (!step.scratch)
        return context.kernels->encode(range_of(context, step, tile), step.noise, step.src_type,
                                       src, step.dst);
    context.kernels->encode(alone(context, step, tile), noise_alone(step, tile), step.src_type, src,
                            step.scratch);
    stream_payload(context, tile, step.scratch, step.dst);
}

void run_step(const TileContext &context, const TileStep &step, const Tile &tile) {
    const Kernels &kernels = *context.kernels;
    std::byte *const dst = step.dst + tile.begin * step.dst_stride;
    const std::byte *const src = step.src + tile.begin * step.src_stride;
    switch (step.what) {
    case Op::What::copy:
        copy_plain(kernels, step.dst_type, dst, step.src_type, src, tile.count, step.streams);
        break;
    case Op::What::reduce: reduce_plain(context, dst, step.src_type, src, tile.count); break;
    case Op::What::multiply: context.scaling->multiply(dst, src, tile.count); break;
    case Op::What::divide:
        kernels.divide(accumulator_of(context.type), dst, tile.count, context.ranks);
        break;
    case Op::What::encode: encode(context, step, tile, src); break;
    case Op::What::decode:
        if (step.scratch)
            kernels.decode(alone(context, step, tile), step.scratch, step.dst_type, dst,
                           step.streams);
        else
            kernels.decode(range_of(context, step, tile), step.src, step.dst_type, dst,
                           step.streams);
        break;
    case Op::What::decode_add:
        if (step.scratch)
            kernels.decode_add(alone(context, step, tile), context.op, step.scratch, dst);
        else
            kernels.decode_add(range_of(context, step, tile), context.op, step.src, dst);
        break;
    case Op::What::keep_error:
        kernels.keep_error(accumulator_of(context.type), dst, src, step.decoded, tile.count,
                           step.factor, step.velocity != 0 ? dst + step.velocity : nullptr);
        break;
    case Op::What::begin_exact: kernels.begin_exact(step.src_type, dst, src, tile.count); break;
    case Op::What::add_exact: kernels.add_exact(step.src_type, dst, src, tile.count); break;
    case Op::What::round_exact:
        kernels.round_exact(step.dst_type, dst, src, tile.count, step.factor);
        break;
    case Op::What::write_header: break; // written once for a chunk, not for a tile
    }
}

} // namespace

void run_whole(const TileContext &context, const TileStep &step) {
    run_step(context, step, {.begin = 0, .count = context.count});
}

void run_tiles(const TileContext &context, std::span<const TileStep> steps, uint64_t tile_count) {
    const bool is_alone = std::any_of(steps.begin(), steps.end(),
                                      [](const TileStep &step) { return step.scratch != nullptr; });
    Tile tile;
    std::optional<PayloadLayout> layout; // is not filled with zeros where no step needs it
    for (; tile.begin < context.count; tile.begin += tile_count) {
        const uint64_t count = std::min(tile_count, context.count - tile.begin);
        if (is_alone && count != tile.count) {
            layout = payload_layout(*context.codec, context.type, count);
            tile.layout = &*layout;
        }
        tile.count = count;
        for (const TileStep &step : steps) run_step(context, step, tile);
    }
}

} // namespace qccl
