// Seqlock records: data that a rank publishes to all ranks in its segment, outside its calls. The
// one writer of a record may replace the bytes while they are read. Used by SurvivorExchange, and
// by RemoteEndpoint to copy records between hosts. Any thread may read; nothing blocks.
#pragma once

#include "transport/segment.hpp"

#include <cstring>
#include <optional>
#include <vector>

namespace qccl {

// Replaces record `number`. `version` is not 0; `bytes` are at most as many as the segment's shape
// has for a record.
void write_record(const Segment &segment, uint32_t number, uint64_t version,
                  std::span<const std::byte> bytes);
// Returns a copy of the latest record, of at most `most` bytes. Nothing: there is none, or it is
// being written.
std::optional<std::vector<std::byte>> read_record(const Segment &segment, uint32_t number,
                                                  size_t most = SIZE_MAX);
// Returns the version of the latest record; 0: there is none.
uint64_t version_of_record(const Segment &segment, uint32_t number);

// Returns the bytes of a record: `head`, then `rest`.
template <class Head>
std::vector<std::byte> joined(const Head &head, std::span<const std::byte> rest) {
    std::vector<std::byte> bytes(sizeof head + rest.size());
    std::memcpy(bytes.data(), &head, sizeof head);
    std::copy(rest.begin(), rest.end(), bytes.begin() + sizeof head);
    return bytes;
}
// Returns the head of a record. Nothing: the record is shorter than a head.
template <class Head> std::optional<Head> head_of(std::span<const std::byte> notice) {
    Head head;
    if (notice.size() < sizeof head) return std::nullopt;
    std::memcpy(&head, notice.data(), sizeof head);
    return head;
}

} // namespace qccl
