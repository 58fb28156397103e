// Converts a task's operations to TileSteps with addresses, decides what is stored past the cache
// or left to zero copy, and runs or launches the steps.
#include "engine/run/task_executor.hpp"

#include "codec/codec.hpp"
#include "device/packed_chunk.hpp"
#include "engine/gpu/gpu_lanes.hpp"

#include <algorithm>

namespace qccl {
namespace {

// Returns the bytes from one element of an operand to the next.
size_t stride(const Work &work, OperandRef place, DataType type) {
    if (place.is(OperandRef::Kind::segment) && work.sums_exactly()) return exact_value_bytes;
    const bool is_tile = place.is(OperandRef::Kind::tile) || place.is(OperandRef::Kind::decoded);
    return is_tile || place.is(OperandRef::Kind::none) ? 0 : type_bytes(type);
}

bool is_callers(OperandRef place) {
    return place.is(OperandRef::Kind::input) || place.is(OperandRef::Kind::output);
}

bool reads_payload(const Op &op) {
    return op.what == Op::What::decode || op.what == Op::What::decode_add;
}

} // namespace

static TileContext context_of(const Device &device, const Work &work, const PayloadLayout &layout) {
    return {.kernels = device.kernels,
            .codec = &work.codec,
            .layout = &layout,
            .type = work.type,
            .op = work.op,
            .ranks = work.team.size};
}

TaskExecutor::TaskExecutor(const Device &device, EngineMemory &memory, const Program &program,
                           const Call &call, bool streams)
    : memory_(memory), program_(program), call_(call), streams_(streams),
      is_in_place_(is_in_place(program, call)),
      part_stride_(std::max<uint64_t>(program.work.count, 1)),
      context_(context_of(device, program.work, layout_)),
      layout_(payload_layout(program.work.codec, program.work.type, 0)),
      inner_layout_(payload_layout(program.work.inner_codec, program.work.type, 0)) {
    if (is_custom(program.work.op))
        context_.custom = &custom_.emplace(*call.op, *program.work.caller_type);
    context_.factors = memory.factors.data();
    if (program.work.op != RedOp::pre_mul_sum || device.gpu) return;
    scaling_ = std::make_unique<InputScaling>(*call.op, *device.kernels);
    context_.scaling = scaling_.get();
}

void TaskExecutor::allow_zero_copy(const ZeroCopyBuffers &buffers) {
    const CollectiveRow &row = row_of(program_.work.collective);
    const bool overwrites = is_in_place_ && row.reduces && !row.scatters;
    if (!overwrites || program_.raw_bytes >= program_.cut.overwriting_bytes)
        zero_copy_buffers_ = buffers;
}

void TaskExecutor::gather(PipelineLane &lane, const Task &task, bool streams_payloads) {
    const Work &work = program_.work;
    const std::span<const Op> ops = ops_of(task);
    const ElementRange segment = range(lane, task);
    if (segment.count != context_.count) {
        layout_ = payload_layout(work.codec, work.type, segment.count);
        inner_layout_ = payload_layout(work.inner_codec, work.type, segment.count);
    }
    context_.count = segment.count;

    memory_.steps.clear();
    part_operands_.clear();
    scratch_wire_.reset();
    streams_payloads_ = streams_payloads;
    zero_copy_output_ = nullptr;
    stored_ = 0;
    for (const Op &op : ops)
        if (op.what == Op::What::write_header)
            write_header(lane, op, segment);
        else
            resolve(lane, op, segment);
}

uint32_t TaskExecutor::run(PipelineLane &lane, const Task &task, bool streams_payloads) {
    gather(lane, task, streams_payloads);
    if (call_.parts.empty())
        run_tiles(context_, memory_.steps, program_.tile);
    else
        run_parts(range(lane, task));
    return stored_;
}

// The segment lies in the buffers of one call after the other.
void TaskExecutor::run_parts(const ElementRange &segment) {
    const uint64_t begin = segment.index % part_stride_, end = begin + segment.count;
    auto part = std::ranges::upper_bound(call_.parts, begin, {}, &CallPart::begin);
    if (part != call_.parts.begin()) --part;
    part_steps_.assign(memory_.steps.begin(), memory_.steps.end());
    for (; part != call_.parts.end() && part->begin < end; ++part) {
        const uint64_t from = std::max(begin, part->begin);
        const uint64_t to = std::min(end, part->begin + part->count);
        if (from >= to) continue;
        for (size_t i = 0; i < part_steps_.size(); i++) point_into(*part, from - begin, i);
        context_.count = to - from;
        run_tiles(context_, part_steps_, program_.tile);
    }
    context_.count = segment.count; // of layout_
}

// Lets step i begin `skipped` elements behind the start of the segment, in the part.
void TaskExecutor::point_into(const CallPart &part, uint64_t skipped, size_t i) {
    const TileStep &whole = memory_.steps[i];
    const auto in_part = [&](const PartOperand &operand) {
        return (operand.of_rank * part.count + operand.at + skipped - part.begin) *
               type_bytes(program_.work.type);
    };
    const auto &[dst, src] = part_operands_[i];
    TileStep &step = part_steps_[i];
    step.dst = dst.is_callers ? part.recv + in_part(dst) : whole.dst + skipped * whole.dst_stride;
    if (src.is_callers)
        step.src = (src.is_output ? part.recv : part.send) + in_part(src);
    else
        step.src = whole.src + skipped * whole.src_stride;
}

TaskExecutor::PartOperand TaskExecutor::part_operand(const PipelineLane &lane, OperandRef place,
                                                     uint32_t chunk) const {
    if (!is_callers(place)) return {};
    const bool is_output = place.is(OperandRef::Kind::output);
    const Slot slot = is_output ? output(place.index) : input(place.index);
    const uint64_t offset = range(lane, slot, chunk).offset;
    return {.is_callers = true,
            .is_output = is_output,
            .of_rank = offset / part_stride_,
            .at = offset % part_stride_};
}

Done TaskExecutor::launch(PipelineLane &lane, const Task &task, KernelLauncher &launcher) {
    gather(lane, task, false);
    return launch_steps(launcher, context_, memory_.steps);
}

void TaskExecutor::complete_chunks(PipelineLane &lane, const Task &task) {
    if (!program_.cut.has_checksums && program_.unpacked_places.empty()) return;
    for (const Op &op : ops_of(task)) {
        if (op.what != Op::What::write_header) continue;
        const HeldView &held = lane.wire(op.dst.index);
        MessageView &wire = lane.wire(op.dst.index).view;
        std::byte *const start = slot_address(lane, op.dst.index);
        if (held.unpacked)
            wire.bytes = pack_chunk(*context_.kernels, codec_of(op), program_.work.type,
                                    range(lane, task).count, held.unpacked, start,
                                    memory_.unpacked.scratch());
        if (program_.cut.has_checksums) add_checksum({start, wire.bytes});
    }
}

Done TaskExecutor::take(PipelineLane &lane, const Step &step, const MessageView &view,
                        uint32_t readers) {
    const Work &work = program_.work;
    const Codec &codec = work.codec_of(step);
    const ElementRange segment = range(lane, step.dst, step.chunk);
    const ExpectedChunk expected{.codec = &codec,
                                 .type = work.type,
                                 .count = segment.count,
                                 .index = segment.index,
                                 .from = step.peer,
                                 .has_checksum = program_.cut.has_checksums};
    HeldView &held = lane.wire(step.dst.index);
    held = {.view = view, .readers = readers};
    if (program_.packs(codec)) {
        held.unpacked = memory_.unpacked.at(program_, lane.number(), step.dst.index);
        return inspect_packed(*context_.kernels, {view.data, view.bytes}, expected, held.unpacked,
                              memory_.unpacked.scratch());
    }
    QCCL_TRY(inspect({view.data, view.bytes}, expected,
                     {.bytes = {view.zero_copy.data, view.zero_copy.bytes},
                      .is_out_of_sight = view.zero_copy.window == device_window}));
    // The zero-copy reference reaches beyond this message. It is cut to the payload, so that
    // forwarding the message to another host sends no more than that.
    if (held.is_zero_copy())
        held.view.zero_copy.bytes = encoded_bytes(codec, work.type, segment.count) - header_bytes;
    return {};
}

void TaskExecutor::resolve(PipelineLane &lane, const Op &op, const ElementRange &segment) {
    const bool stores_payload = op.dst.is(OperandRef::Kind::payload);
    const bool keeps_error = op.what == Op::What::keep_error;
    std::byte *const dst = keeps_error ? residual(segment) : writable(lane, op.dst, op.chunk);
    const std::byte *const src = readable(lane, op.src, op.chunk);
    const bool has_parts = !call_.parts.empty();
    if (has_parts)
        part_operands_.emplace_back(part_operand(lane, op.dst, op.chunk),
                                    part_operand(lane, op.src, op.chunk));
    const bool lies_there =
        !has_parts && op.what == Op::What::copy && dst == src && op.dst_type == op.src_type;
    if (lies_there || (op.dst.is(OperandRef::Kind::output) && dst == zero_copy_output_)) return;
    if (stores_payload && lane.wire(op.dst.index).is_zero_copy()) zero_copy_output_ = dst;
    const bool is_packed = stores_payload && lane.wire(op.dst.index).unpacked;
    const bool stores_shared = (stores_payload && !is_packed) || overwrites_zero_copy(lane, op);
    if (stores_shared) stored_++;
    memory_.steps.push_back(
        {.what = op.what,
         .streams = stores_shared ? streams_payloads_ : streams_ && op.may_stream,
         .dst_type = op.dst_type,
         .src_type = op.src_type,
         .dst = dst,
         .src = src,
         .dst_stride = op.what == Op::What::encode ? 0 : stride(program_.work, op.dst, op.dst_type),
         .src_stride = reads_payload(op) ? 0 : stride(program_.work, op.src, op.src_type),
         .noise = reads_payload(op) ? stated_noise(lane, op) : noise(op, segment),
         .codec = op.is_inner ? &program_.work.inner_codec : nullptr,
         .layout = op.is_inner ? &inner_layout_ : nullptr,
         .scratch = scratch(op),
         .decoded = keeps_error ? decoded(lane) : nullptr,
         .factor = op.is_divided ? program_.work.team.size : 1,
         .velocity = keeps_error ? call_.feedback->velocity : 0});
}

std::byte *TaskExecutor::residual(const ElementRange &segment) const {
    const size_t bytes = type_bytes(accumulator_of(program_.work.type));
    return call_.feedback->residual + segment.index * bytes;
}

std::byte *TaskExecutor::decoded(const PipelineLane &lane) const {
    return memory_.tiles.data() +
           tile_number(lane, program_.decoded_tile) * program_.sum_bytes(program_.tile);
}

// A chunk that is streamed to the outbox is encoded tile by tile in the cache. Later operations of
// the same run read it there, because the outbox would have to come back from memory.
std::byte *TaskExecutor::scratch(const Op &op) {
    const bool is_packed = program_.packs(codec_of(op)); // and then read in the cache anyway
    if (op.is_inner || is_packed || program_.tile_payload_bytes == 0) return nullptr;
    if (op.what == Op::What::encode && streams_payloads_)
        scratch_wire_ = op.dst.index;
    else if (!reads_payload(op) || scratch_wire_ != op.src.index)
        return nullptr;
    return memory_.scratch.data();
}

void TaskExecutor::write_header(PipelineLane &lane, const Op &op, const ElementRange &segment) {
    const Work &work = program_.work;
    const Noise drawn = noise(op, segment);
    const size_t payload_bytes = op.is_inner ? inner_layout_.bytes : layout_.bytes;
    const bool is_packed = program_.packs(codec_of(op));
    std::byte *const unpacked =
        is_packed ? memory_.unpacked.at(program_, lane.number(), op.dst.index) : nullptr;
    std::byte *const start = slot_address(lane, op.dst.index);
    qccl::write_header(codec_of(op),
                       {.type = work.type,
                        .count = segment.count,
                        .first_index = segment.index,
                        .noise_key = drawn.key,
                        .call = drawn.call,
                        .sampled_nmse = call_.sampled_nmse ? *call_.sampled_nmse : uint16_t{0}},
                       is_packed ? unpacked : start);
    HeldView &held = lane.wire(op.dst.index);
    held = {.view = {.data = start,
                     .bytes = header_bytes + payload_bytes,
                     .origin = work.team.rank,
                     .slot = slot(lane, op.dst.index)},
            .unpacked = unpacked};
    if (is_packed) return;
    if (!device_outbox_.empty()) {
        const size_t offset = static_cast<size_t>(start - outbox_.data());
        held.view.zero_copy = {.data = device_outbox_.data() + offset,
                               .bytes = payload_bytes,
                               .window = device_window};
        held.view.bytes = header_bytes;
        return;
    }
    if (segment.count == 0 || !has_zero_copy()) return;
    held.view.zero_copy = find_zero_copy(lane, op);
    if (!held.is_zero_copy()) return;
    held.view.zero_copy.bytes = payload_bytes;
    held.view.bytes = header_bytes;
    held.readers = program_.zero_copy_sources[op.ordinal].readers;
}

// An input already lies in the caller's memory, and an output has to be stored there anyway.
ZeroCopyRef TaskExecutor::find_zero_copy(const PipelineLane &lane, const Op &header) const {
    const ZeroCopySource &source = program_.zero_copy_sources[header.ordinal];
    const auto part = [&](ZeroCopyRef whole, Slot slot) {
        whole.data += range(lane, slot, header.chunk).offset * type_bytes(program_.work.type);
        return whole;
    };
    if (source.input && zero_copy_buffers_.send.data && (!is_in_place_ || source.also_in_place))
        return part(zero_copy_buffers_.send, input(*source.input));
    if (source.output && zero_copy_buffers_.recv.data)
        return part(zero_copy_buffers_.recv, output(*source.output));
    return {};
}

Slot TaskExecutor::slot_of(const Op &op) {
    for (const OperandRef &place : {op.dst, op.src}) {
        if (place.is(OperandRef::Kind::payload)) return wire(place.index);
        if (place.is(OperandRef::Kind::input)) return input(place.index);
        if (place.is(OperandRef::Kind::output)) return output(place.index);
    }
    return {}; // a sum, to whose chunk all parts have one count
}

bool TaskExecutor::has_segment(const PipelineLane &lane, const Task &task) const {
    const auto has = [&](Slot slot, uint32_t chunk) {
        return program_.layout.has_segment(slot, chunk, lane.instance(), program_.geometry.segment);
    };
    if (task.kind == Task::Kind::work) {
        const Op &op = program_.ops[task.first];
        return has(slot_of(op), op.chunk);
    }
    const Step &step = program_.schedule.steps[task.first];
    return has(task.kind == Task::Kind::send ? step.src : step.dst, step.chunk);
}

std::span<const std::byte> TaskExecutor::overwritten(PipelineLane &lane, const Op &op) const {
    if (!op.dst.is(OperandRef::Kind::output)) return {};
    const uint64_t count = range(lane, output(op.dst.index), op.chunk).count;
    return {writable(lane, op.dst, op.chunk), count * type_bytes(program_.work.type)};
}

bool TaskExecutor::overwrites_zero_copy(PipelineLane &lane, const Op &op) const {
    if (!is_in_place_ || !op.dst.is(OperandRef::Kind::output)) return false;
    const auto range = overwritten(lane, op);
    const auto wires = lane.own_wires();
    return std::any_of(wires.begin(), wires.end(),
                       [&](const HeldView &held) { return held.shares_bytes_with(range); });
}

Noise TaskExecutor::noise(const Op &op, const ElementRange &segment) const {
    return {.key = noise_key(call_.noise_seed, op.noise_rank, op.ordinal),
            .call = noise_call(call_),
            .first_index = segment.index};
}

// The header lies in the host's memory, of a chunk from another rank, too, and has been accepted.
Noise TaskExecutor::stated_noise(PipelineLane &lane, const Op &op) const {
    const Codec &codec = op.is_inner ? program_.work.inner_codec : program_.work.codec;
    if (!codec.dithers()) return {};
    // A chunk of this rank's own is packed, header and all, when the task is done.
    const HeldView &held = lane.wire(op.src.index);
    return qccl::stated_noise({held.unpacked ? held.unpacked : held.view.data, header_bytes});
}

RecvBuffer TaskExecutor::recv_buffer(const PipelineLane &lane, uint32_t wire,
                                     uint32_t first) const {
    if (program_.recv_buffers() == 0) return {};
    const size_t bytes = program_.geometry.wire_bytes;
    const uint32_t number =
        lane.number() * program_.recv_buffers() + wire - program_.schedule.outbox;
    return {.slot = first + number,
            .memory = places_.empty() ? inbox_.subspan(number * bytes, bytes)
                                      : outbox_.subspan(places_[wire].offset, places_[wire].bytes)};
}

std::byte *TaskExecutor::slot_address(const PipelineLane &lane, uint32_t wire) const {
    return outbox_.data() + (places_.empty() ? slot(lane, wire) * program_.geometry.wire_bytes
                                             : places_[wire].offset);
}

std::byte *TaskExecutor::writable(PipelineLane &lane, OperandRef place, uint32_t chunk) const {
    switch (place.kind) {
    case OperandRef::Kind::output:
        return static_cast<std::byte *>(call_.recv) +
               range(lane, output(place.index), chunk).offset * type_bytes(program_.work.type);
    case OperandRef::Kind::tile:
        return memory_.tiles.data() +
               tile_number(lane, place.index) * program_.sum_bytes(program_.tile);
    case OperandRef::Kind::segment:
        return memory_.segments.data() + (lane.number() * program_.segment_buffers + place.index) *
                                             program_.sum_bytes(program_.segment_values);
    // For an input that peers read in place only the address counts: the step's source is the same
    // memory.
    case OperandRef::Kind::payload:
        return const_cast<std::byte *>(lane.wire(place.index).payload());
    case OperandRef::Kind::decoded: return decoded(lane);
    case OperandRef::Kind::residual: // by the segment
    case OperandRef::Kind::input:
    case OperandRef::Kind::none: break;
    }
    return nullptr;
}

const std::byte *TaskExecutor::readable(PipelineLane &lane, OperandRef place,
                                        uint32_t chunk) const {
    if (place.is(OperandRef::Kind::input))
        return static_cast<const std::byte *>(call_.send) +
               range(lane, input(place.index), chunk).offset *
                   type_bytes(program_.work.input_type());
    return writable(lane, place, chunk);
}

} // namespace qccl
