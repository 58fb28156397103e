// The task executor does the computing of a task for one instance: it finds the addresses of the
// operands, and runs the operations over tiles. It does not copy values that peers can read in the
// caller's buffers. The interpreter uses it, on one thread; nothing here waits.
#pragma once

#include "codec/chunk.hpp"
#include "engine/run/engine.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace qccl {

// The caller's buffers, as peers can read them in place; null data: they cannot.
struct ZeroCopyBuffers {
    ZeroCopyRef send, recv;
};

class TaskExecutor {
public:
    // With `streams` results are stored past the cache. All references must outlive the executor.
    TaskExecutor(const Device &device, EngineMemory &memory, const Program &program,
                 const Call &call, bool streams);

    // Sets where wire slots lie: `inbox` has those for messages from other hosts, `outbox` all
    // others. Payloads lie at the same offsets of `device_outbox`, unless that is empty.
    void use(std::span<std::byte> outbox, std::span<std::byte> inbox,
             std::span<std::byte> device_outbox) {
        outbox_ = outbox;
        inbox_ = inbox;
        device_outbox_ = device_outbox;
    }
    // Puts all wire slots into memory of the call's own; `places` has the range of each slot in it.
    void use_overflow(std::span<std::byte> memory, std::vector<ByteRange> places) {
        outbox_ = memory;
        places_ = std::move(places);
    }

    // From now on peers read the caller's buffers in place where that pays.
    void allow_zero_copy(const ZeroCopyBuffers &buffers);
    bool has_zero_copy() const {
        return zero_copy_buffers_.send.data || zero_copy_buffers_.recv.data;
    }

    // Runs the task's operations. The lane then holds what they have encoded, which is stored past
    // the cache if `streams_payloads` is set. Returns how many operations stored bytes that peers
    // read.
    uint32_t run(PipelineLane &lane, const Task &task, bool streams_payloads);
    // Whether the operations that have run could do their work. An error is that of the program's
    // own function.
    Done outcome() const {
        if (custom_) return custom_->outcome();
        return {};
    }
    // Starts the task's operations on a GPU, which runs them later; all their memory must stay
    // until then. An error is the GPU's.
    Done launch(PipelineLane &lane, const Task &task, KernelLauncher &launcher);
    // Packs what the task has encoded, and writes its checksums, if the program does so. Call it
    // when the task is done.
    void complete_chunks(PipelineLane &lane, const Task &task);
    // Checks a received message, and unpacks it if it is packed. The lane's wire slot then holds
    // it, for so many readers.
    Done take(PipelineLane &lane, const Step &step, const MessageView &view, uint32_t readers);

    // Returns the range of the caller's memory that the operation writes; empty if it writes
    // elsewhere.
    std::span<const std::byte> overwritten(PipelineLane &lane, const Op &op) const;

    // Returns the transport's number for one of the lane's own wire slots.
    uint32_t slot(const PipelineLane &lane, uint32_t wire) const {
        return lane.number() * program_.schedule.outbox + wire;
    }
    // Returns the buffer for a message that the lane receives into the wire slot, if the message
    // comes from another host. `first` is the transport's number of the first inbox slot.
    RecvBuffer recv_buffer(const PipelineLane &lane, uint32_t wire, uint32_t first) const;
    // Returns the elements of the chunk that the lane's instance works on.
    ElementRange range(const PipelineLane &lane, Slot slot, uint32_t chunk) const {
        return program_.layout.range(slot, chunk, lane.instance(), program_.geometry.segment);
    }

    // The elements that a computing task works on: those of its first operation.
    ElementRange range(const PipelineLane &lane, const Task &task) const {
        const Op &op = program_.ops[task.first];
        return range(lane, slot_of(op), op.chunk);
    }
    // Whether the task's chunk has a segment in the lane's instance, see Layout::has_segment.
    bool has_segment(const PipelineLane &lane, const Task &task) const;

private:
    // Returns the slot by which the operation's chunk has its count: of v-forms, parts that are
    // sent and parts that are received have counts of their own.
    static Slot slot_of(const Op &op);
    // Finds the steps and the addresses of the task's operations.
    void gather(PipelineLane &lane, const Task &task, bool streams_payloads);
    void resolve(PipelineLane &lane, const Op &op, const ElementRange &segment);
    // An operand of a call with parts. One of the caller lies `at` elements into the vector, or
    // into the part of a rank.
    struct PartOperand {
        bool is_callers = false, is_output = false;
        uint64_t of_rank = 0, at = 0;
    };
    PartOperand part_operand(const PipelineLane &lane, OperandRef place, uint32_t chunk) const;
    void run_parts(const ElementRange &segment);
    void point_into(const CallPart &part, uint64_t skipped, size_t i);
    // Returns true if peers read in place what the operation overwrites.
    bool overwrites_zero_copy(PipelineLane &lane, const Op &op) const;
    // `header`: the write_header of the chunk that peers may read where it lies.
    ZeroCopyRef find_zero_copy(const PipelineLane &lane, const Op &header) const;
    std::byte *scratch(const Op &op);
    void write_header(PipelineLane &lane, const Op &op, const ElementRange &segment);
    Noise noise(const Op &op, const ElementRange &segment) const;
    // The noise of the chunk that the operation decodes, if its codec needs it.
    Noise stated_noise(PipelineLane &lane, const Op &op) const;
    // On a GPU lanes run side by side, so each has its own tiles.
    size_t tile_number(const PipelineLane &lane, uint32_t index) const {
        return (memory_.gpu ? lane.number() * program_.tile_buffers : 0) + index;
    }
    std::byte *residual(const ElementRange &segment) const;
    std::byte *decoded(const PipelineLane &lane) const;
    std::byte *slot_address(const PipelineLane &lane, uint32_t wire) const;
    const Codec &codec_of(const Op &op) const {
        return op.is_inner ? program_.work.inner_codec : program_.work.codec;
    }
    std::span<const Op> ops_of(const Task &task) const {
        return std::span(program_.ops).subspan(task.first, task.last - task.first);
    }
    std::byte *writable(PipelineLane &lane, OperandRef place, uint32_t chunk) const;
    const std::byte *readable(PipelineLane &lane, OperandRef place, uint32_t chunk) const;

    EngineMemory &memory_;
    const Program &program_;
    const Call &call_;
    std::span<std::byte> outbox_, inbox_, device_outbox_;
    std::vector<ByteRange> places_; // of wire slots in the outbox; empty: slots have equal sizes
    const bool streams_, is_in_place_;
    std::optional<CustomReduction> custom_; // of a custom operation
    std::unique_ptr<InputScaling> scaling_; // of pre_mul_sum, on the host
    // Elements from the start of one rank's part of the vector to the next, or of the vector.
    const uint64_t part_stride_;
    // For Call::parts: of each step of the task its dst and src, and the step as it runs on a part.
    std::vector<std::pair<PartOperand, PartOperand>> part_operands_;
    std::vector<TileStep> part_steps_;
    TileContext context_;
    // Of a segment of context_.count elements: in the outermost tier, and below.
    PayloadLayout layout_, inner_layout_;
    bool streams_payloads_ = false;
    std::optional<uint32_t> scratch_wire_; // wire slot whose tile lies in the scratch
    ZeroCopyBuffers zero_copy_buffers_;
    const std::byte *zero_copy_output_ = nullptr; // that the task stores and peers read in place
    uint32_t stored_ = 0;                         // operations of the task that store for peers
};

} // namespace qccl
