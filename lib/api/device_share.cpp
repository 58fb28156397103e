#include "api/device_share.hpp"

#include "base/round_up.hpp"

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
        QCCL_TRY(share->show(transport));
        std::vector<GpuMemoryName> names(transport.size());
        QCCL_TRY(all_gather(&share->own_, names.data(), sizeof share->own_));
        const uint8_t reaches = share->map(names) ? 1 : 0;
        std::vector<uint8_t> all(transport.size());
        QCCL_TRY(all_gather(&reaches, all.data(), sizeof reaches));
        if (std::ranges::count(all, uint8_t{1}) == static_cast<long>(all.size())) {
            std::vector<std::span<std::byte>> views;
            for (const Mapped &mapped : share->mapped_)
                views.push_back({mapped.memory, share->outbox_.size()});
            transport.use_device_memory(std::move(views));
            share->place_lines();
            return share;
        }
        share->forget();
    }
    if (share->gpu_) QCCL_TRY(share->pin(transport.arenas()));
    return share;
}

// Lines lie behind the outbox.
static size_t lines_offset(size_t outbox_bytes) { return round_up(outbox_bytes, gpu_alignment); }

void DeviceShare::place_lines() {
    if (mapped_.size() > most_meeting_ranks || !gpu_->traits().can_meet) return;
    lines_.line_bytes = line_bytes;
    for (const Mapped &mapped : mapped_)
        lines_.by_rank.push_back(mapped.memory + lines_offset(outbox_.size()));
}

// Memory that has no name for others is reached by none of them.
Done DeviceShare::show(Transport &transport) {
    const size_t outbox = transport.outbox().size();
    const size_t bytes = lines_offset(outbox) + DeviceLines::bytes(transport.size(), line_bytes);
    QCCL_TRY(std::byte *const memory, gpu_->take_lasting(bytes));
    outbox_ = {memory, outbox};
    bytes_ = bytes;
    if (const auto name = gpu_->name_memory(memory, bytes)) own_ = *name;
    return {};
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
    if (!outbox_.empty()) gpu_->leave_lasting(outbox_.data(), bytes_);
    outbox_ = {};
}

DeviceShare::~DeviceShare() {
    for (std::byte *const memory : pinned_) gpu_->unpin(memory);
    if (gpu_) forget();
}

} // namespace qccl
