#include "engine/workbench.hpp"

#include "kernels/philox.hpp"

namespace qccl {
namespace {

// Of an operand from one element to the next.
size_t stride(Place place, DataType type) {
    return place.is(Place::Kind::tile) ? 0 : type_bytes(type);
}

bool reads_payload(const Op &op) {
    return op.what == Op::What::decode || op.what == Op::What::decode_add;
}

} // namespace

Workbench::Workbench(const Device &device, EngineMemory &memory, const Program &program,
                     const Call &call, std::span<std::byte> outbox, bool streams)
    : memory_(memory), program_(program), call_(call), outbox_(outbox),
      streams_(streams), context_{.kernels = device.kernels,
                                  .codec = &program.work.codec,
                                  .layout = &layout_,
                                  .type = program.work.type,
                                  .op = program.work.op,
                                  .ranks = program.work.team.size},
      layout_(payload_layout(program.work.codec, program.work.type, 0)) {}

void Workbench::run(Lane &lane, const Task &task, bool streams_payloads) {
    const Work &work = program_.work;
    const std::span<const Op> ops =
        std::span(program_.ops).subspan(task.first, task.last - task.first);
    const ElementRange segment = range(lane, {}, ops.front().chunk);
    if (segment.count != context_.count)
        layout_ = payload_layout(work.codec, work.type, segment.count);
    context_.count = segment.count;

    memory_.steps.clear();
    scratch_wire_.reset();
    streams_payloads_ = streams_payloads;
    for (const Op &op : ops)
        if (op.what == Op::What::label)
            label(lane, op, segment);
        else
            resolve(lane, op, segment);
    run_tiles(context_, memory_.steps, program_.tile);

    if (!program_.cut.seals) return;
    for (const Op &op : ops) {
        if (op.what != Op::What::label) continue;
        const Wire &wire = lane.wire(op.dst.index).wire;
        seal_chunk({slot_address(lane, op.dst.index), wire.bytes});
    }
}

void Workbench::resolve(Lane &lane, const Op &op, const ElementRange &segment) {
    memory_.steps.push_back(
        {.what = op.what,
         .streams = op.dst.is(Place::Kind::payload) ? streams_payloads_ : streams_ && op.may_stream,
         .dst_type = op.dst_type,
         .src_type = op.src_type,
         .dst = writable(lane, op.dst, op.chunk),
         .src = readable(lane, op.src, op.chunk),
         .dst_stride = op.what == Op::What::encode ? 0 : stride(op.dst, op.dst_type),
         .src_stride = reads_payload(op) ? 0 : stride(op.src, op.src_type),
         .noise = noise(op, segment),
         .scratch = scratch(op)});
}

// A chunk that is streamed to the outbox is made tile by tile in the cache, and what the same run
// goes on with is read there: the outbox would have to come back from memory.
std::byte *Workbench::scratch(const Op &op) {
    if (op.what == Op::What::encode && streams_payloads_)
        scratch_wire_ = op.dst.index;
    else if (!reads_payload(op) || scratch_wire_ != op.src.index)
        return nullptr;
    return memory_.scratch.data();
}

void Workbench::label(Lane &lane, const Op &op, const ElementRange &segment) {
    const Work &work = program_.work;
    const Noise drawn = noise(op, segment);
    std::byte *const start = slot_address(lane, op.dst.index);
    write_header(work.codec,
                 {.type = work.type,
                  .count = segment.count,
                  .first_index = segment.index,
                  .noise_key = drawn.key,
                  .call = drawn.call},
                 start);
    lane.wire(op.dst.index).wire = {.data = start,
                                    .bytes = header_bytes + layout_.bytes,
                                    .origin = work.team.rank,
                                    .slot = slot(lane, op.dst.index)};
}

Noise Workbench::noise(const Op &op, const ElementRange &segment) const {
    return {.key = noise_key(call_.noise_seed, program_.work.team.rank, op.ordinal),
            .call = call_.number,
            .first_index = segment.index};
}

std::byte *Workbench::slot_address(const Lane &lane, uint32_t wire) const {
    return outbox_.data() + slot(lane, wire) * program_.geometry.wire_bytes;
}

std::byte *Workbench::writable(const Lane &lane, Place place, uint32_t chunk) const {
    const size_t sum_bytes = type_bytes(accumulator_of(program_.work.type));
    switch (place.kind) {
    case Place::Kind::output:
        return static_cast<std::byte *>(call_.recv) +
               range(lane, output(place.index), chunk).offset * type_bytes(program_.work.type);
    case Place::Kind::tile: return memory_.tiles.data() + place.index * program_.tile * sum_bytes;
    case Place::Kind::segment:
        return memory_.segments.data() + (lane.number() * program_.segment_buffers + place.index) *
                                             program_.geometry.segment * sum_bytes;
    case Place::Kind::payload: return slot_address(lane, place.index) + header_bytes;
    case Place::Kind::input:
    case Place::Kind::none: break;
    }
    return nullptr;
}

const std::byte *Workbench::readable(Lane &lane, Place place, uint32_t chunk) const {
    if (place.is(Place::Kind::input))
        return static_cast<const std::byte *>(call_.send) +
               range(lane, input(place.index), chunk).offset * type_bytes(program_.work.type);
    const bool is_received =
        place.is(Place::Kind::payload) && place.index >= program_.schedule.outbox;
    if (is_received) return lane.wire(place.index).wire.data + header_bytes;
    return writable(lane, place, chunk);
}

} // namespace qccl
