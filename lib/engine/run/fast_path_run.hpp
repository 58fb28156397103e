// Runs a program with one exchange over the transport's eager slots, on the host: what the call
// writes into its slot, and what it does with those of other ranks. The engine passes it to
// Transport::exchange, which blocks until all ranks that the call reads have posted theirs. An
// error is damaged_data, if a rank's slot does not hold what it should. `Trace` is NoTrace or
// StepTrace.
#pragma once

#include "base/types.hpp"
#include "codec/chunk.hpp"
#include "codec/codec.hpp"
#include "engine/compile/fast_path.hpp"
#include "engine/compile/program.hpp"
#include "engine/run/pipeline_lane.hpp"
#include "transport/transport.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace qccl {

// Addresses and numbers of one call.
struct FastPathCall {
    const std::byte *send = nullptr;
    std::byte *recv = nullptr;
    std::byte *sum = nullptr;      // FastPathProgram::sum_bytes of memory
    std::byte *decoded = nullptr;  // FastPathProgram::decoded_bytes of memory
    std::byte *residual = nullptr; // the caller's new residual
    size_t velocity = 0;           // as TileStep::velocity
    uint64_t noise_call = 0;       // the number by which the call draws its noise
    uint64_t noise_seed = 0;
    CustomReduction *custom = nullptr; // of a custom operation
};

template <class Trace> class FastPathRun final : public EagerExchange {
public:
    FastPathRun(const Kernels &kernels, const Program &program, const CallShape &called,
                const CallNumbers &own, std::chrono::nanoseconds limit, const FastPathCall &call,
                Trace &trace)
        : EagerExchange(called, own, limit, program.fast_path->eager_slot_bytes,
                        program.fast_path->read_ranks),
          kernels_(kernels), program_(program), fast_path_(*program.fast_path), call_(call),
          trace_(trace), header_(program.fast_path->header) {}

    void write(std::byte *slot) override {
        own_slot_ = slot;
        trace_.begin_fast_path();
        for (const EagerOp &op : fast_path_.stages.front()) run(op);
        trace_.end_work();
    }

    void posted() override { trace_.eager_posted(); }

    Done read(size_t number, std::span<const std::byte> slot) override {
        const FastPathProgram::Reads &reads = fast_path_.reads[number];
        const uint32_t rank = fast_path_.read_ranks[number];
        const bool is_own = rank == program_.work.team.rank;
        if (!is_own) trace_.eager(rank, slot.size());
        // Below `bytes` the difference wraps. The descriptor, whose hash has been compared, says
        // the length, so another one means that the slot is damaged.
        if (slot.size() - reads.bytes > reads.spare) [[unlikely]]
            return has_wrong_size(rank, slot.size(), reads);
        slot_ = slot.data();
        const EagerOp *const ops = fast_path_.stages.back().data();
        for (size_t i = reads.first; i < reads.end; i++) {
            if (header_ != 0 && !is_own && ops[i].src.base == EagerOperand::Base::eager_slot)
                QCCL_TRY(inspect_chunk(ops[i]));
            run(ops[i]);
        }
        trace_.end_work();
        return {};
    }

private:
    [[gnu::cold]] static Error has_wrong_size(uint32_t rank, size_t bytes,
                                              const FastPathProgram::Reads &reads) {
        const uint64_t nearest = bytes < reads.bytes ? reads.bytes : reads.bytes + reads.spare;
        return Error::make(Code::damaged_data,
                           "the eager slot of rank %u has %zu bytes instead of %s%zu", rank, bytes,
                           reads.spare == 0      ? ""
                           : bytes < reads.bytes ? "at least "
                                                 : "at most ",
                           size_t{nearest})
            .at_rank(rank);
    }

    Done inspect_chunk(const EagerOp &op) const {
        const EagerChunk &chunk = fast_path_.chunks[op.chunk];
        return inspect({slot_ + chunk.offset, chunk.bytes}, {.codec = &program_.work.codec,
                                                             .type = program_.work.type,
                                                             .count = chunk.count,
                                                             .index = chunk.index,
                                                             .from = op.src.rank});
    }

    void run(const EagerOp &op) {
        const EagerChunk &chunk = fast_path_.chunks[op.chunk];
        trace_.eager_op(op, chunk.count);
        // Moving plain values of a few bytes takes less time than filling in a TileStep.
        if (op.plain_bytes != 0) {
            std::byte *const dst = address(op.dst);
            const std::byte *const src = source(op.src);
            if (dst != src) std::memcpy(dst, src, op.plain_bytes);
            return;
        }
        if (chunk.count == 0 && op.what != Op::What::write_header) return;
        if (op.what == Op::What::copy)
            copy_plain(kernels_, op.dst_type, address(op.dst), op.src_type, source(op.src),
                       chunk.count, false);
        else if (op.what == Op::What::reduce)
            reduce_plain(context(chunk), address(op.dst), op.src_type, source(op.src), chunk.count);
        else
            run_described(op, chunk);
    }

    void run_described(const EagerOp &op, const EagerChunk &chunk) {
        const bool encodes = op.what == Op::What::write_header || op.what == Op::What::encode;
        const bool decodes = op.what == Op::What::decode || op.what == Op::What::decode_add;
        const Noise noise = encodes ? noise_of(op, chunk)
                            : decodes && program_.work.codec.dithers()
                                ? stated_noise({source(op.src) - header_, header_bytes})
                                : Noise{};
        if (op.what == Op::What::write_header)
            return write_header(program_.work.codec,
                                {.type = program_.work.type,
                                 .count = chunk.count,
                                 .first_index = chunk.index,
                                 .noise_key = noise.key,
                                 .call = noise.call},
                                own_slot_ + op.dst.offset);
        run_whole(context(chunk), {.what = op.what,
                                   .dst_type = op.dst_type,
                                   .src_type = op.src_type,
                                   .dst = address(op.dst),
                                   .src = source(op.src),
                                   .noise = noise,
                                   .decoded = call_.decoded,
                                   .factor = op.is_divided ? program_.work.team.size : 1,
                                   .velocity = call_.velocity});
    }

    TileContext context(const EagerChunk &chunk) const {
        return {.kernels = &kernels_,
                .codec = &program_.work.codec,
                .layout = &chunk.layout,
                .type = program_.work.type,
                .op = program_.work.op,
                .ranks = program_.work.team.size,
                .count = chunk.count,
                .custom = call_.custom};
    }

    Noise noise_of(const EagerOp &op, const EagerChunk &chunk) const {
        return {.key = noise_key(call_.noise_seed, op.noise_rank, op.ordinal),
                .call = call_.noise_call,
                .first_index = chunk.index};
    }

    // Returns where a step writes, which is never another rank's eager slot.
    std::byte *address(const EagerOperand &place) const {
        switch (place.base) {
        case EagerOperand::Base::recv: return call_.recv + place.offset;
        case EagerOperand::Base::sum: return call_.sum;
        case EagerOperand::Base::eager_slot:
        case EagerOperand::Base::own_slot: return own_slot_ + place.offset + header_;
        case EagerOperand::Base::decoded: return call_.decoded;
        case EagerOperand::Base::residual: return call_.residual + place.offset;
        case EagerOperand::Base::send:
        case EagerOperand::Base::none: break;
        }
        return nullptr;
    }

    const std::byte *source(const EagerOperand &place) const {
        if (place.base == EagerOperand::Base::send) return call_.send + place.offset;
        if (place.base == EagerOperand::Base::eager_slot) return slot_ + place.offset + header_;
        return address(place);
    }

    const Kernels &kernels_;
    const Program &program_;
    const FastPathProgram &fast_path_;
    const FastPathCall &call_;
    Trace &trace_;
    const uint64_t header_;
    std::byte *own_slot_ = nullptr;
    const std::byte *slot_ = nullptr; // the one that is read
};

} // namespace qccl
