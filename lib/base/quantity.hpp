// Numbers as people write them: counts, sizes with K, M and G, durations with a unit. Knows nothing
// of what they measure; whoever asks names what was wrong.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// Digits alone.
std::optional<uint64_t> parse_count(std::string_view text);
// "2.5" with three decimals is 2500: a number without sign, counted in its smallest decimals. More
// of them than that are none.
std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals);
// The shortest text that is read back so.
std::string write_decimal(uint64_t value, unsigned decimals);
// "4096", "64K", "1MiB", "2g", "1.5M": units are powers of 1024, and what is less than a byte is
// cut off, as in nccl-tests.
std::optional<uint64_t> parse_bytes(std::string_view text);
// "30", "1.5s", "20us", "10ms", "2m", "1h": a number without a unit counts seconds.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
// "10gbit", "100G", "2.5Gbps", "100Mb/s": bits a second. "12.5GB/s", "12.5GBps": bytes a second,
// which have a capital B. Units are powers of 1000. Returns bytes a second.
std::optional<uint64_t> parse_rate(std::string_view text);

} // namespace qccl
