// Where the GPUs of a communicator find what ranks send each other: in GPU memory if each GPU
// reaches all others', and otherwise in host outboxes, which are pinned for the GPU. Creation makes
// it, on all ranks together; Comm hands it to the engine.
#pragma once

#include "base/log.hpp"
#include "engine/gpu_fast_path.hpp"
#include "transport/transport.hpp"

#include <memory>
#include <span>
#include <vector>

namespace qccl {

class GpuStaging {
public:
    // All ranks create theirs together, with or without a GPU, and with the same `may_lend`. True
    // means that all ranks have GPUs, are on one host, and that the host need not read the
    // payloads. If the GPUs do not reach each other's memory, one rank tells `log` why.
    static Result<std::unique_ptr<GpuStaging>> create(std::shared_ptr<Gpu> gpu, bool may_lend,
                                                      Transport &transport,
                                                      const AllGather &all_gather, const Log &log);
    ~GpuStaging();
    GpuStaging(const GpuStaging &) = delete;

    // The members of EngineOptions. Without an outbox, payloads lie in the transport's outbox, and
    // there are no eager slots.
    std::span<std::byte> outbox() const { return outbox_; }
    const DeviceEagerSlots &lines() const { return lines_; }

private:
    explicit GpuStaging(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
    Done show(Transport &transport);
    // An error says which rank's memory this rank does not reach, and why.
    Done map(std::span<const GpuMemoryName> names, uint32_t own_rank);
    void place_lines();
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
    DeviceEagerSlots lines_;
    std::vector<MappedMemory> pinned_;
};

} // namespace qccl
