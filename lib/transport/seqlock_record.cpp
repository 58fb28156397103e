// Writes and reads seqlock records.
#include "transport/seqlock_record.hpp"

#include <cstring>

namespace qccl {

void write_record(const Segment &segment, uint32_t number, uint64_t version,
                  std::span<const std::byte> bytes) {
    SeqlockHeader &head = segment.notice(number);
    const auto words = segment.record_words(number);
    // The words are stored with release order, so a reader that acquires a new word sees this odd
    // version, too.
    head.version.store(2 * version - 1, std::memory_order_relaxed);
    for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
        uint64_t word = 0;
        std::memcpy(&word, &bytes[at], std::min(sizeof word, bytes.size() - at));
        words[at / sizeof word].store(word, std::memory_order_release);
    }
    head.bytes.store(bytes.size(), std::memory_order_release);
    head.version.store(2 * version, std::memory_order_release);
}

std::optional<std::vector<std::byte>> read_record(const Segment &segment, uint32_t number,
                                                  size_t most) {
    const SeqlockHeader &head = segment.notice(number);
    const uint64_t version = head.version.load(std::memory_order_acquire);
    if (version == 0 || version % 2 == 1) return std::nullopt;
    const auto words = segment.record_words(number);
    const uint64_t bytes = head.bytes.load(std::memory_order_acquire);
    if (bytes > words.size_bytes()) return std::nullopt;
    std::vector<std::byte> copy(std::min(bytes, most));
    for (size_t at = 0; at < copy.size(); at += sizeof(uint64_t)) {
        const uint64_t word = words[at / sizeof word].load(std::memory_order_acquire);
        std::memcpy(&copy[at], &word, std::min(sizeof word, copy.size() - at));
    }
    if (head.version.load(std::memory_order_relaxed) != version) return std::nullopt;
    return copy;
}

uint64_t version_of_record(const Segment &segment, uint32_t number) {
    return segment.notice(number).version.load(std::memory_order_acquire) / 2;
}

} // namespace qccl
