// The memory in which the ranks of a communicator find each other's data.
// GpuStaging says where GPUs find what ranks send each other: in GPU memory if each GPU reaches all
// others', and otherwise in host outboxes, which are pinned for the GPU. Creation makes it, on all
// ranks together; Comm hands it to the engine.
// Registrations are the memory of this rank that peers may read in place in calls of its
// communicator. Registrations that are left at the communicator's end are given back. Used inside
// the entry guard, between calls. ScratchMemory is memory that calls use one after the other, so
// that its pages are there: fused calls for their buffers, calls with shared scales for scales and
// integers. A use begins inside the entry guard, and ends on any thread.
#pragma once

#include "base/log.hpp"
#include "engine/run/gpu_fast_path.hpp"
#include "memory/shared_block.hpp"
#include "transport/transport.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace qccl {

// ---- Outboxes of GPUs

class GpuStaging {
public:
    // All ranks create theirs together, with or without a GPU, and with the same `has_zero_copy`.
    // True means that all ranks have GPUs, are on one host, and that the host need not read the
    // payloads. If the GPUs do not reach each other's memory, one rank tells `log` why.
    static Result<std::unique_ptr<GpuStaging>> create(std::shared_ptr<Gpu> gpu, bool has_zero_copy,
                                                      Transport &transport,
                                                      const AllGather &all_gather, const Log &log);
    ~GpuStaging();
    GpuStaging(const GpuStaging &) = delete;

    // The members of EngineOptions. Without an outbox, payloads lie in the transport's outbox, and
    // there are no eager slots.
    std::span<std::byte> outbox() const { return outbox_; }
    const DeviceEagerSlots &eager_slots() const { return eager_slots_; }

private:
    explicit GpuStaging(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
    Done allocate_outbox(Transport &transport);
    // An error says which rank's memory this rank does not reach, and why.
    Done map(std::span<const GpuMemoryName> names, uint32_t own_rank);
    void place_eager_slots();
    void forget();
    void keep_overflow(Transport &transport);
    Done pin(const MappedMemory &memory);

    struct Mapped {
        GpuMemoryName name;
        std::byte *memory = nullptr;
    };
    std::shared_ptr<Gpu> gpu_;
    std::span<std::byte> outbox_; // this rank's, in GPU memory
    size_t bytes_ = 0;            // of the outbox and the eager slots behind it
    GpuMemoryName own_;           // empty if the memory could not be named
    Done named_;                  // the error of naming it
    std::vector<Mapped> mapped_;  // by rank
    DeviceEagerSlots eager_slots_;
    std::vector<MappedMemory> pinned_;
};

// ---- Memory that peers read in place

class Registrations {
public:
    Registrations(Transport &transport, const Log &log) : transport_(transport), log_(log) {}

    // Registers the block and returns a handle for `remove`.
    void *add(SharedBlock &block);
    // Returns invalid_usage for a handle that was removed or is another communicator's, and
    // invalid_argument for a value that never was a handle.
    Done remove(const void *handle);
    void clear() { held_.clear(); }
    // Registers here what `other` holds, under the same handles.
    void add_all(const Registrations &other);

private:
    // While it lives, the block is exposed to peers and cannot be freed.
    class Registration {
    public:
        Registration(Transport &transport, SharedBlock &block, uint64_t number);
        ~Registration();
        Registration(const Registration &) = delete;
        // Whether peers can map everything that is registered.
        bool has_room() const { return has_room_; }
        void *handle() const;
        uint64_t number() const { return number_; }
        SharedBlock &block() const { return block_; }

    private:
        Transport &transport_;
        SharedBlock &block_;
        const uint64_t number_;
        const bool has_room_;
    };

    void hold(SharedBlock &block, uint64_t number);
    bool holds(uint64_t number) const;

    Transport &transport_;
    const Log &log_;
    bool has_told_ = false; // that peers cannot map everything
    std::vector<std::unique_ptr<Registration>> held_;
};

// ---- Scratch memory of calls

class ScratchMemory {
    struct Block {
        explicit Block(size_t size)
            : values(std::make_unique_for_overwrite<std::byte[]>(size)), bytes(size) {}
        const std::unique_ptr<std::byte[]> values;
        const size_t bytes;
        std::atomic<bool> is_used{true};
    };

public:
    class Use {
    public:
        explicit Use(std::shared_ptr<Block> block) : block_(std::move(block)) {}
        Use(Use &&) = default;
        ~Use() {
            if (block_) block_->is_used.store(false, std::memory_order_release);
        }
        std::byte *data() const { return block_->values.get(); }

    private:
        std::shared_ptr<Block> block_;
    };

    // Returns memory of at least `bytes`, with any values in it. The memory of the last use is used
    // again if that has ended and the memory is large enough.
    Use begin(size_t bytes);

private:
    // A larger block is given back.
    static constexpr size_t most_kept = size_t{16} << 20;

    std::shared_ptr<Block> kept_;
};

} // namespace qccl
