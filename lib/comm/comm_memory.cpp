// Implements outboxes and eager slots in GPU memory, the pinning of outboxes in host memory, the
// registration of memory with one communicator, and the scratch memory of calls.
#include "comm/comm_memory.hpp"

#include "base/types.hpp"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <utility>

namespace qccl {

// ---- Outboxes of GPUs

namespace {

// How this rank's GPU reaches the others' memory. A rank whose own memory has no name comes first,
// because it knows why other ranks do not reach that memory.
enum class PeerAccess : uint8_t { unnamed, partial, full };

} // namespace

Result<std::unique_ptr<GpuStaging>> GpuStaging::create(std::shared_ptr<Gpu> gpu, bool has_zero_copy,
                                                       Transport &transport,
                                                       const AllGather &all_gather,
                                                       const Log &log) {
    std::unique_ptr<GpuStaging> staging(new GpuStaging(std::move(gpu)));
    staging->keep_overflow(transport);
    if (has_zero_copy) {
        QCCL_TRY(staging->allocate_outbox(transport));
        std::vector<GpuMemoryName> names(transport.size());
        QCCL_TRY(all_gather(&staging->own_, names.data(), sizeof staging->own_));
        const Done reached = staging->map(names, transport.rank());
        const PeerAccess own = !staging->named_ ? PeerAccess::unnamed
                               : reached        ? PeerAccess::full
                                                : PeerAccess::partial;
        std::vector<PeerAccess> all(transport.size());
        QCCL_TRY(all_gather(&own, all.data(), sizeof own));
        const auto least = std::ranges::min_element(all);
        if (*least == PeerAccess::full) {
            std::vector<std::span<std::byte>> views;
            for (const Mapped &mapped : staging->mapped_)
                views.push_back({mapped.memory, staging->outbox_.size()});
            transport.windows().use_device_memory(std::move(views));
            staging->place_eager_slots();
            return staging;
        }
        // One rank warns, because the other ranks usually fail for the same reason.
        if (least - all.begin() == static_cast<long>(transport.rank()))
            log.warn(
                "GPUs do not reach each other's memory, so what ranks send goes through memory "
                "of the host, which is slower: %s",
                reached.error().text);
        staging->forget();
    }
    if (staging->gpu_)
        for (const std::span<std::byte> arena : transport.traits().arenas)
            QCCL_TRY(staging->pin({.keeper = nullptr, .bytes = arena})); // until the transport ends
    return staging;
}

// The eager slots lie behind the outbox.
static size_t eager_slots_offset(size_t outbox_bytes) {
    return round_up(outbox_bytes, gpu_alignment);
}

void GpuStaging::place_eager_slots() {
    if (mapped_.size() > most_barrier_ranks || !gpu_->traits().has_gpu_barrier) return;
    eager_slots_.eager_slot_bytes = gpu_eager_bytes;
    for (const Mapped &mapped : mapped_)
        eager_slots_.by_rank.push_back(mapped.memory + eager_slots_offset(outbox_.size()));
}

// If the memory cannot be named for other processes, no peer reaches it, and `named_` keeps the
// error.
Done GpuStaging::allocate_outbox(Transport &transport) {
    const size_t outbox = transport.outbox().size();
    const size_t bytes =
        eager_slots_offset(outbox) + DeviceEagerSlots::bytes(transport.size(), gpu_eager_bytes);
    QCCL_TRY(std::byte *const memory, gpu_->pool_acquire(bytes));
    outbox_ = {memory, outbox};
    bytes_ = bytes;
    const auto name = gpu_->name_memory(memory, bytes);
    if (name)
        own_ = *name;
    else
        named_ = name.error();
    return {};
}

Done GpuStaging::map(std::span<const GpuMemoryName> names, uint32_t own_rank) {
    QCCL_TRY(named_);
    for (uint32_t rank = 0; rank < names.size(); rank++) {
        const auto memory = gpu_->map(names[rank]);
        if (!memory)
            return Error::make(memory.error().code,
                               "rank %" PRIu32 " does not reach rank %" PRIu32 ": %s", own_rank,
                               rank, memory.error().text);
        mapped_.push_back({names[rank], *memory});
    }
    return {};
}

Done GpuStaging::pin(const MappedMemory &memory) {
    if (memory.bytes.empty()) return {};
    QCCL_TRY(gpu_->pin(memory.bytes.data(), memory.bytes.size()));
    pinned_.push_back(memory);
    return {};
}

// Calls that need more than the outbox use memory of the host. Memory that is pinned for such a
// call stays pinned, because unpinning waits for everything that the GPU does, also for the stream
// that waits for the call.
void GpuStaging::keep_overflow(Transport &transport) {
    if (gpu_)
        transport.keep_overflow([this](const MappedMemory &memory) { return pin(memory); });
    else
        transport.keep_overflow(nullptr);
}

void GpuStaging::forget() {
    for (const Mapped &mapped : mapped_) gpu_->unmap(mapped.name, mapped.memory);
    mapped_.clear();
    if (!outbox_.empty()) gpu_->pool_release(outbox_.data(), bytes_);
    outbox_ = {};
}

GpuStaging::~GpuStaging() {
    for (const MappedMemory &memory : pinned_) gpu_->unpin(memory.bytes.data());
    if (gpu_) forget();
}

// ---- Memory that peers read in place

namespace {

// A handle is a number that the process gives once, behind 16 bits that no address begins with.
constexpr uint64_t first_number = uint64_t{0x51C4} << 48;
constinit std::atomic<uint64_t> next_number{first_number};

bool was_given(const void *handle) {
    const uint64_t number = reinterpret_cast<uintptr_t>(handle);
    return number >= first_number && number < next_number.load(std::memory_order_relaxed);
}

} // namespace

Registrations::Registration::Registration(Transport &transport, SharedBlock &block, uint64_t number)
    : transport_(transport), block_(block), number_(number),
      has_room_(transport.windows().expose({.base = block.base(), .file = block.file})) {
    std::atomic_ref(block_.registrations).fetch_add(1, std::memory_order_relaxed);
}

Registrations::Registration::~Registration() {
    transport_.windows().withdraw(block_.base());
    std::atomic_ref(block_.registrations).fetch_sub(1, std::memory_order_release);
}

void *Registrations::Registration::handle() const { return reinterpret_cast<void *>(number_); }

void *Registrations::add(SharedBlock &block) {
    hold(block, next_number.fetch_add(1, std::memory_order_relaxed));
    return held_.back()->handle();
}

void Registrations::hold(SharedBlock &block, uint64_t number) {
    held_.push_back(std::make_unique<Registration>(transport_, block, number));
    if (!held_.back()->has_room() && !std::exchange(has_told_, true))
        log_.info("more blocks of memory are registered than peers map at a time; calls on the "
                  "others copy, as on unregistered memory");
}

bool Registrations::holds(uint64_t number) const {
    return std::ranges::any_of(held_, [=](const auto &held) { return held->number() == number; });
}

void Registrations::add_all(const Registrations &other) {
    for (const auto &held : other.held_)
        if (!holds(held->number())) hold(held->block(), held->number());
}

Done Registrations::remove(const void *handle) {
    const auto found = std::find_if(held_.begin(), held_.end(),
                                    [=](const auto &held) { return held->handle() == handle; });
    if (found != held_.end()) {
        held_.erase(found);
        return {};
    }
    if (was_given(handle))
        return Error::make(Code::invalid_usage,
                           "handle is %p, which has been deregistered (or qcclCommRegister gave it "
                           "for another communicator)",
                           handle);
    return invalid_argument("handle is %p, which qcclCommRegister did not give", handle);
}

// ---- Scratch memory of calls

ScratchMemory::Use ScratchMemory::begin(size_t bytes) {
    if (kept_ && kept_->bytes >= bytes && !kept_->is_used.load(std::memory_order_acquire)) {
        kept_->is_used.store(true, std::memory_order_relaxed);
        return Use(kept_);
    }
    auto block = std::make_shared<Block>(bytes);
    if (bytes <= most_kept) kept_ = block;
    return Use(std::move(block));
}

} // namespace qccl
