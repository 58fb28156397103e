#include "api/device_share.hpp"

#include <algorithm>

namespace qccl {

// What a line takes; larger calls gain more by being cut into segments than by having the host left
// out.
static constexpr size_t line_bytes = size_t{1} << 20;

Result<std::unique_ptr<DeviceShare>> DeviceShare::create(std::shared_ptr<Gpu> gpu, bool may_lend,
                                                         Transport &transport,
                                                         const AllGather &all_gather) {
    std::unique_ptr<DeviceShare> share(new DeviceShare(std::move(gpu)));
    if (may_lend) {
        const size_t outbox = transport.outbox().size();
        const size_t all_bytes = outbox + DeviceLines::bytes(transport.size(), line_bytes);
        QCCL_TRY(std::byte *const memory, share->gpu_->allocate(all_bytes));
        share->outbox_ = {memory, outbox};
        QCCL_TRY(const GpuMemoryName own, share->gpu_->name_memory(memory, all_bytes));
        std::vector<GpuMemoryName> names(transport.size());
        QCCL_TRY(all_gather(&own, names.data(), sizeof own));
        const uint8_t reaches = share->map(names) ? 1 : 0;
        std::vector<uint8_t> all(transport.size());
        QCCL_TRY(all_gather(&reaches, all.data(), sizeof reaches));
        if (std::ranges::count(all, uint8_t{1}) == static_cast<long>(all.size())) {
            std::vector<std::span<std::byte>> views;
            for (const Mapped &mapped : share->mapped_)
                views.push_back({mapped.memory, share->outbox_.size()});
            transport.use_device_memory(std::move(views));
            return share;
        }
        share->forget();
    }
    if (share->gpu_) QCCL_TRY(share->pin(transport.arenas()));
    return share;
}

DeviceLines DeviceShare::lines() const {
    DeviceLines lines{.by_rank = {}, .line_bytes = line_bytes};
    if (mapped_.size() > most_meeting_ranks) return lines;
    // They lie behind the outbox.
    for (const Mapped &mapped : mapped_) lines.by_rank.push_back(mapped.memory + outbox_.size());
    return lines;
}

bool DeviceShare::map(std::span<const GpuMemoryName> names) {
    for (const GpuMemoryName &name : names) {
        const auto memory = gpu_->map(name);
        if (!memory) return false;
        mapped_.push_back({name, *memory});
    }
    return true;
}

Done DeviceShare::pin(std::span<const std::span<std::byte>> arenas) {
    for (const std::span<std::byte> arena : arenas) {
        if (arena.empty()) continue;
        QCCL_TRY(gpu_->pin(arena.data(), arena.size()));
        pinned_.push_back(arena.data());
    }
    return {};
}

void DeviceShare::forget() {
    for (const Mapped &mapped : mapped_) gpu_->unmap(mapped.name, mapped.memory);
    mapped_.clear();
    if (!outbox_.empty()) gpu_->free(outbox_.data());
    outbox_ = {};
}

DeviceShare::~DeviceShare() {
    for (std::byte *const memory : pinned_) gpu_->unpin(memory);
    if (gpu_) forget();
}

} // namespace qccl
