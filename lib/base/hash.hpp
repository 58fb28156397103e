// Hashes of numbers, equal on every rank: of what ranks compare, and for tables. Not against values
// that somebody has chosen to collide. Pure; any thread may call.
#pragma once

#include <cstdint>

namespace qccl {

// Returns the hash of what `hash` covers and of the word behind it.
constexpr uint64_t mixed_hash(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15; // 2^64 / golden ratio
    return hash ^ hash >> 29;
}

// Returns a hash of the counts of all items, which `count_of` gives, in their order.
template <class Items, class CountOf>
constexpr uint32_t hash_counts(const Items &items, const CountOf &count_of) {
    uint64_t hash = items.size();
    for (const auto &item : items) hash = mixed_hash(hash, count_of(item));
    return static_cast<uint32_t>(hash >> 32);
}

} // namespace qccl
