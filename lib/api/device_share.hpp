// How the GPUs of a communicator reach what ranks send each other: in memory of the GPUs where each
// of them reaches all others', else in outboxes of the host, which the GPU reaches too. Made with
// the communicator; knows no calls.
#pragma once

#include "base/log.hpp"
#include "engine/gpu_lines.hpp"
#include "transport/transport.hpp"

#include <memory>
#include <span>
#include <vector>

namespace qccl {

class DeviceShare {
public:
    // Of a rank with a GPU or without one; all ranks make theirs together, with the same
    // `may_lend`: all have GPUs and are on one host, and nothing has to be read by it.
    // Where they do not reach each other's GPUs, one of them tells `log` why.
    static Result<std::unique_ptr<DeviceShare>> create(std::shared_ptr<Gpu> gpu, bool may_lend,
                                                       Transport &transport,
                                                       const AllGather &all_gather, const Log &log);
    ~DeviceShare();
    DeviceShare(const DeviceShare &) = delete;

    // As the engine has them; empty: payloads lie in the transport's outbox, and there are no
    // lines.
    std::span<std::byte> outbox() const { return outbox_; }
    const DeviceLines &lines() const { return lines_; }

private:
    explicit DeviceShare(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}
    Done show(Transport &transport);
    // An error says whose memory this rank does not reach, and why.
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
    std::span<std::byte> outbox_; // of the GPU; the own one
    size_t bytes_ = 0;            // of the outbox and what lies behind it
    GpuMemoryName own_;           // nobody's where it could not be named
    Done named_;                  // or why
    std::vector<Mapped> mapped_;  // of all ranks
    DeviceLines lines_;
    std::vector<MappedMemory> pinned_;
};

} // namespace qccl
