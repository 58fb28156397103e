// What a rank says to all others beside its calls, in its segment: bytes that it may replace while
// they are read. One writer. Knows not what they mean.
#pragma once

#include "transport/segment.hpp"

#include <cstring>
#include <optional>
#include <vector>

namespace qccl {

// Of another version than 0; as many bytes as the shape has for them, at most.
void write_notice(const Segment &segment, uint32_t number, uint64_t version,
                  std::span<const std::byte> bytes);
// The latest as a copy, of so many bytes at most. Nothing: there is none, or it is just being
// written.
std::optional<std::vector<std::byte>> read_notice(const Segment &segment, uint32_t number,
                                                  size_t most = SIZE_MAX);
uint64_t version_of_notice(const Segment &segment, uint32_t number);

// Notices begin with something of their own.
template <class Head>
std::vector<std::byte> joined(const Head &head, std::span<const std::byte> rest) {
    std::vector<std::byte> bytes(sizeof head + rest.size());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::copy(rest.begin(), rest.end(), bytes.begin() + sizeof head);
    return bytes;
}
// Nothing where a rank has said less.
template <class Head> std::optional<Head> head_of(std::span<const std::byte> notice) {
    Head head;
    if (notice.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, notice.data(), sizeof head);
    return head;
}

} // namespace qccl
