// Builds the fast-path form of a program: lays out its chunks in the eager slots, and sorts its
// operations by the exchange before which or after which they run.
#include "engine/compile/fast_path.hpp"

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "engine/compile/program.hpp"

#include <algorithm>
#include <cstring>

namespace qccl {
namespace {

using Base = EagerOperand::Base;

// Chunks start at their own cache line.
constexpr uint64_t chunk_alignment = 64;

// Lays out the chunks of an eager slot: every slot holds all chunks in order. For an all-gather a
// slot holds only its own rank's chunk, and of a v-form any may be the longest. `end` becomes the
// end of the fullest slot.
std::vector<EagerChunk> place_chunks(const Program &program, uint64_t &end) {
    const Work &work = program.work;
    std::vector<EagerChunk> chunks(program.layout.chunks());
    for (uint32_t c = 0; c < chunks.size(); c++) {
        const ElementRange range = program.layout.range({}, c);
        const uint64_t bytes = work.codec.is_lossless()
                                   ? range.count * type_bytes(work.type)
                                   : encoded_bytes(work.codec, work.type, range.count);
        const uint64_t offset = row_of(work.collective).gathers ? 0 : end;
        chunks[c] = {.count = range.count,
                     .index = range.index,
                     .offset = offset,
                     .bytes = bytes,
                     .layout = payload_layout(work.codec, work.type, range.count)};
        end = std::max(end, offset + round_up(bytes, chunk_alignment));
    }
    return chunks;
}

class FastPathBuilder {
public:
    // All ranks run the same phases, so a receive after this rank's first encode of a computed
    // value belongs to the second exchange.
    explicit FastPathBuilder(const Program &program)
        : program_(program),
          wire_sources_(program.schedule.wires, {.peer = program.work.team.rank}) {
        uint32_t exchange = 0;
        for (const Step &step : program.schedule.steps) {
            if (step.verb == Verb::recv)
                wire_sources_[step.dst.index] = {.peer = step.peer, .exchange = exchange};
            if (step.verb != Verb::encode || step.src.is(SlotKind::input)) continue;
            exchange = 1;
            wire_sources_[step.dst.index].exchange = exchange;
        }
        fast_path_.stages.resize(exchange + 2);
        if (!program.work.codec.is_lossless()) fast_path_.header = header_bytes;
    }

    Result<std::optional<FastPathProgram>> bind() {
        const Chunking &cut = program_.cut;
        if (cut.eager_slot_bytes == 0 || cut.has_checksums) return {std::nullopt};
        // The eager slots of GPUs have no headers, which say what noise a decoder has to subtract.
        if (cut.eager_exchanges > 1 && program_.work.codec.dithers()) return {std::nullopt};
        uint64_t end = 0;
        fast_path_.chunks = place_chunks(program_, end);
        if (end > cut.eager_slot_bytes) return {std::nullopt};
        if (fast_path_.exchanges() > cut.eager_exchanges)
            return Error::make(
                Code::internal_error,
                "%s sends what it does not have from the start, which eager slots cannot",
                program_.work.algorithm.c_str());
        for (const Op &op : program_.ops) QCCL_TRY(add(op));
        for (std::vector<EagerOp> &stage : fast_path_.stages)
            for (EagerOp &op : stage)
                if (op.what == Op::What::copy && op.dst_type == op.src_type)
                    op.plain_bytes = fast_path_.chunks[op.chunk].count * type_bytes(op.src_type);
        if (fast_path_.exchanges() == 1) {
            sum_in_output(fast_path_.stages.back());
            group_reads(fast_path_.stages.back());
        }
        return {std::move(fast_path_)};
    }

private:
    Done add(const Op &op) {
        const bool writes_slot = op.dst.is(OperandRef::Kind::payload);
        // Headers of plain values are left out; see FastPathProgram.
        if (op.what == Op::What::write_header && program_.work.codec.is_lossless()) return {};
        QCCL_TRY(const EagerOperand dst, place(op.dst, op));
        QCCL_TRY(EagerOperand src, place(op.src, op));
        // The bytes have just been written, and may not have been posted yet.
        if (op.dst.is(OperandRef::Kind::decoded)) src.base = Base::own_slot;
        fast_path_.stages[stage_of(op)].push_back({.what = op.what,
                                                   .dst_type = op.dst_type,
                                                   .src_type = op.src_type,
                                                   .dst = dst,
                                                   .src = src,
                                                   .chunk = op.chunk,
                                                   .ordinal = op.ordinal,
                                                   .noise_rank = op.noise_rank,
                                                   .is_divided = op.is_divided});
        const EagerChunk &chunk = fast_path_.chunks[op.chunk];
        if (writes_slot)
            fast_path_.eager_slot_bytes =
                std::max(fast_path_.eager_slot_bytes, chunk.offset + chunk.bytes);
        return {};
    }

    // An operation that neither writes nor reads an eager slot belongs to the sum, in stage 1. The
    // error of an encode is found behind the encode.
    uint32_t stage_of(const Op &op) {
        if (op.dst.is(OperandRef::Kind::payload))
            return encoding_stage_ = wire_sources_[op.dst.index].exchange;
        if (op.dst.is(OperandRef::Kind::decoded) || op.dst.is(OperandRef::Kind::residual))
            return encoding_stage_;
        return op.src.is(OperandRef::Kind::payload) ? wire_sources_[op.src.index].exchange + 1 : 1;
    }

    Result<EagerOperand> place(const OperandRef &at, const Op &op) {
        const auto offset = [&](Slot slot, DataType type) {
            return program_.layout.range(slot, op.chunk).offset * type_bytes(type);
        };
        const DataType sum_type = accumulator_of(program_.work.type);
        switch (at.kind) {
        case OperandRef::Kind::input:
            return EagerOperand{.base = Base::send,
                                .offset = offset(input(at.index), program_.work.input_type())};
        case OperandRef::Kind::output:
            return EagerOperand{.base = Base::recv,
                                .offset = offset(output(at.index), program_.work.type)};
        case OperandRef::Kind::decoded: {
            const uint64_t needed = fast_path_.chunks[op.chunk].count * type_bytes(sum_type);
            fast_path_.decoded_bytes = std::max(fast_path_.decoded_bytes, needed);
            return EagerOperand{.base = Base::decoded};
        }
        case OperandRef::Kind::residual:
            return EagerOperand{.base = Base::residual,
                                .offset = fast_path_.chunks[op.chunk].index * type_bytes(sum_type)};
        case OperandRef::Kind::payload:
            return EagerOperand{.base = Base::eager_slot,
                                .rank = wire_sources_[at.index].peer,
                                .offset = fast_path_.chunks[op.chunk].offset};
        case OperandRef::Kind::tile:
        case OperandRef::Kind::segment: return sum(op.chunk);
        case OperandRef::Kind::none: break;
        }
        return EagerOperand{};
    }

    Result<EagerOperand> sum(uint32_t chunk) {
        if (sum_chunk_ && *sum_chunk_ != chunk)
            return Error::make(Code::internal_error, "%s has several sums, eager slots serve one",
                               program_.work.algorithm.c_str());
        sum_chunk_ = chunk;
        fast_path_.sum_bytes = program_.sum_bytes(fast_path_.chunks[chunk].count);
        return EagerOperand{.base = Base::sum};
    }

    // Lets a sum of the output's own type grow in the output. That is not possible if an input is
    // still to be read: the input may lie in the same memory.
    void sum_in_output(std::vector<EagerOp> &reads) {
        if (reads.empty()) return;
        const EagerOp last = reads.back();
        const bool stores_sum = last.what == Op::What::copy && last.src.base == Base::sum &&
                                last.dst.base == Base::recv && last.dst_type == last.src_type;
        const auto needs_care = [&](const EagerOp &op) {
            const bool is_first = &op == &reads.front();
            return (op.src.base == Base::send && !is_first) || op.chunk != last.chunk;
        };
        if (!stores_sum || std::any_of(reads.begin(), reads.end(), needs_care)) return;
        reads.pop_back();
        for (EagerOp &op : reads)
            if (op.dst.base == Base::sum) op.dst = last.dst;
        fast_path_.sum_bytes = 0;
    }

    void group_reads(const std::vector<EagerOp> &ops) {
        const uint32_t own = program_.work.team.rank;
        for (size_t i = 0; i < ops.size(); i++) {
            const bool reads_slot = ops[i].src.base == Base::eager_slot;
            const uint32_t rank = reads_slot ? ops[i].src.rank : own;
            const bool is_first = fast_path_.reads.empty();
            if (is_first || (reads_slot && rank != fast_path_.read_ranks.back())) {
                fast_path_.read_ranks.push_back(rank);
                fast_path_.reads.push_back({.first = i});
            }
            fast_path_.reads.back().end = i + 1;
            if (!reads_slot) continue;
            const EagerChunk &chunk = fast_path_.chunks[ops[i].chunk];
            uint64_t &bytes = fast_path_.reads.back().bytes;
            bytes = std::max(bytes, chunk.offset + chunk.bytes);
        }
        limit_slots();
    }

    // A slot of an all-gather or a gather has its own rank's chunk and nothing else. Any other slot
    // ends with one of the chunks, at most with the last one.
    void limit_slots() {
        const bool has_one_chunk = row_of(program_.work.collective).gathers;
        uint64_t end = 0;
        for (const EagerChunk &chunk : fast_path_.chunks)
            end = std::max(end, chunk.offset + chunk.bytes);
        for (size_t i = 0; i < fast_path_.reads.size(); i++) {
            FastPathProgram::Reads &reads = fast_path_.reads[i];
            const bool is_own = fast_path_.read_ranks[i] == program_.work.team.rank;
            reads.spare = is_own ? UINT64_MAX : has_one_chunk ? 0 : end - reads.bytes;
        }
    }

    const Program &program_;
    struct WireSlotSource {
        uint32_t peer = 0;     // the rank whose eager slot holds it
        uint32_t exchange = 0; // the exchange that carries it
    };
    std::vector<WireSlotSource> wire_sources_;
    std::optional<uint32_t> sum_chunk_;
    uint32_t encoding_stage_ = 0; // of the latest encode
    FastPathProgram fast_path_;
};

} // namespace

Result<std::optional<FastPathProgram>> bind(const Program &program) {
    return FastPathBuilder(program).bind();
}

} // namespace qccl
