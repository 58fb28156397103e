// The workbench does a task's computing for one instance: it finds the addresses behind the places
// that operations name, and runs them over tiles. Values that peers can read in the caller's
// buffers are not copied for them. Knows no peers and never waits.
#pragma once

#include "codec/chunk.hpp"
#include "engine/engine.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace qccl {

// The caller's buffers, if peers can read them where they lie.
struct Loans {
    Loan send, recv;
};

class Workbench {
public:
    // With `streams` results go past the cache.
    Workbench(const Device &device, EngineMemory &memory, const Program &program, const Call &call,
              bool streams);

    // Where the wires lie, and where those from other hosts come to lie; payloads at the same
    // places of `device_outbox`, unless that is empty.
    void use(std::span<std::byte> outbox, std::span<std::byte> inbox,
             std::span<std::byte> device_outbox) {
        outbox_ = outbox;
        inbox_ = inbox;
        device_outbox_ = device_outbox;
    }
    // All of them lie in memory of the call's own, where it has a place for each.
    void use_overflow(std::span<std::byte> memory, std::vector<ByteRange> places) {
        outbox_ = memory;
        places_ = std::move(places);
    }

    // What is worth it is lent from then on.
    void lend(const Loans &loans);
    bool lends() const { return loans_.send.data || loans_.recv.data; }

    // Runs the operations; what they encode is held by the lane from then on. With
    // `streams_payloads` it is stored past the cache. How many operations stored what peers read.
    uint32_t run(Lane &lane, const Task &task, bool streams_payloads);
    // The same on a GPU, which does it later; until then nothing that it names may go.
    Done launch(Lane &lane, const Task &task, Launches &launches);
    // What the task has encoded is there: it gets its checksums, if there are any.
    void seal(Lane &lane, const Task &task);

    // Where the operation writes in the caller's memory; empty: elsewhere.
    std::span<const std::byte> overwritten(Lane &lane, const Op &op) const;

    // The transport's number of an own wire slot of the lane.
    uint32_t slot(const Lane &lane, uint32_t wire) const {
        return lane.number() * program_.schedule.outbox + wire;
    }
    // Where what the lane receives in that wire slot comes to lie, if it comes from another host.
    Room room(const Lane &lane, uint32_t wire, uint32_t first) const;
    // The elements of the chunk that the lane's instance works on.
    ElementRange range(const Lane &lane, Slot slot, uint32_t chunk) const {
        return program_.layout.range(slot, chunk, lane.instance(), program_.geometry.segment);
    }

private:
    // Finds what the task's operations come to.
    void gather(Lane &lane, const Task &task, bool streams_payloads);
    void resolve(Lane &lane, const Op &op, const ElementRange &segment);
    // Peers have read what the operation writes over.
    bool was_lent(Lane &lane, const Op &op) const;
    Loan find_loan(const Lane &lane, const Op &label) const;
    std::byte *scratch(const Op &op);
    void label(Lane &lane, const Op &op, const ElementRange &segment);
    Noise noise(const Op &op, const ElementRange &segment) const;
    // On a GPU lanes work side by side, and each has tiles of its own.
    size_t tile_number(const Lane &lane, uint32_t index) const {
        return (memory_.gpu ? lane.number() * program_.tile_buffers : 0) + index;
    }
    std::byte *slot_address(const Lane &lane, uint32_t wire) const;
    std::span<const Op> ops_of(const Task &task) const {
        return std::span(program_.ops).subspan(task.first, task.last - task.first);
    }
    std::byte *writable(Lane &lane, Place place, uint32_t chunk) const;
    const std::byte *readable(Lane &lane, Place place, uint32_t chunk) const;

    EngineMemory &memory_;
    const Program &program_;
    const Call &call_;
    std::span<std::byte> outbox_, inbox_, device_outbox_;
    std::vector<ByteRange> places_; // of wires in the outbox; empty: they lie in a row
    const bool streams_, is_in_place_;
    TileContext context_;
    // Of a segment of context_.count elements: in the outermost tier, and below.
    PayloadLayout layout_, inner_layout_;
    bool streams_payloads_ = false;
    std::optional<uint32_t> scratch_wire_; // whose tile lies in the scratch
    Loans loans_;
    const std::byte *lent_ = nullptr; // output that the task stores for peers
    uint32_t stored_ = 0;             // by the task, operations
};

} // namespace qccl
