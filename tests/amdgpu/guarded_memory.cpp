// Implements Memory and the access checks that translated kernels call for each load and store.
#include "guarded_memory.hpp"

#include <algorithm>
#include <cstdio>

namespace amdgpu {
namespace {

constexpr size_t guard = 4096;
constexpr std::byte filling{0xCB};

} // namespace

std::byte *Memory::add(size_t bytes, size_t misalignment) {
    const size_t whole = guard + misalignment + bytes + guard;
    owned_.push_back(std::make_unique<std::byte[]>(whole));
    std::byte *all = owned_.back().get();
    std::fill_n(all, whole, filling);
    const auto address = reinterpret_cast<std::uintptr_t>(all);
    std::byte *begin = all + (guard - address % guard) % guard + misalignment;
    lend(begin, bytes, Use::read_write);
    return begin;
}

void Memory::lend(const void *begin, size_t bytes, Use use) {
    const u64 address = reinterpret_cast<std::uintptr_t>(begin);
    const Region region{address, address + bytes, use};
    const auto after =
        std::upper_bound(regions_.begin(), regions_.end(), region,
                         [](const Region &a, const Region &b) { return a.begin < b.begin; });
    regions_.insert(after, region);
}

void Memory::forget(const void *begin) {
    const u64 address = reinterpret_cast<std::uintptr_t>(begin);
    std::erase_if(regions_, [address](const Region &region) { return region.begin == address; });
    last_ = {};
}

std::byte *Memory::reach(u64 address, size_t bytes, Use use) const {
    const auto holds = [&](const Region &region) {
        return address >= region.begin && address + bytes <= region.end && use <= region.use;
    };
    if (!holds(last_)) {
        const auto found = std::find_if(regions_.begin(), regions_.end(), holds);
        if (found == regions_.end()) return nullptr;
        last_ = *found;
    }
    return reinterpret_cast<std::byte *>(address); // NOLINT(performance-no-int-to-ptr)
}

std::vector<std::byte> Memory::contents() const {
    std::vector<std::byte> all;
    for (const Region &region : regions_) {
        if (region.use == Use::read_only) continue;
        const auto *begin = reinterpret_cast<const std::byte *>(region.begin);
        all.insert(all.end(), begin, begin + (region.end - region.begin));
    }
    return all;
}

void Memory::restore(const std::vector<std::byte> &contents) const {
    const std::byte *from = contents.data();
    for (const Region &region : regions_) {
        if (region.use == Use::read_only) continue;
        const size_t bytes = region.end - region.begin;
        std::copy_n(from, bytes, reinterpret_cast<std::byte *>(region.begin));
        from += bytes;
    }
}

namespace {

// Returns the address of an access inside a block of `bytes` bytes at `begin`, or null if the
// access is not entirely inside.
std::byte *within(std::byte *begin, size_t bytes, u64 offset, size_t access) {
    return offset <= bytes && access <= bytes - offset ? begin + offset : nullptr;
}

std::byte *scratch_of(Wave &w, u64 offset, unsigned lane, size_t bytes) {
    const size_t each = w.own.size() / most_lanes;
    return within(w.own.data() + lane * each, each, offset, bytes);
}

} // namespace

std::byte *reach(Wave &w, Space space, u64 address, unsigned lane, size_t bytes, bool writes) {
    const u64 offset = static_cast<u32>(address);
    if (space == Space::flat && (address & window_mask) == local_window) space = Space::local;
    if (space == Space::flat && (address & window_mask) == scratch_window) space = Space::scratch;
    std::byte *found = nullptr;
    switch (space) {
    case Space::local: found = within(w.local.data(), w.local.size(), offset, bytes); break;
    case Space::scratch: found = scratch_of(w, offset, lane, bytes); break;
    default:
        found = w.memory->reach(address, bytes,
                                writes ? Memory::Use::read_write : Memory::Use::read_only);
    }
    if (found != nullptr) return found;
    constexpr std::array names{"global", "global", "local", "scratch"};
    std::array<char, 160> text{};
    std::snprintf(text.data(), text.size(), "lane %u %s %zu bytes outside %s memory, at 0x%llx",
                  lane, writes ? "writes" : "reads", bytes, names[static_cast<size_t>(space)],
                  static_cast<unsigned long long>(address));
    w.fail(text.data());
    return nullptr;
}

} // namespace amdgpu
