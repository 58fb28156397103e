// Parses numbers as people write them: counts, sizes with K, M and G, durations and rates with a
// unit. Every parser returns nothing for text that it does not accept; the caller words the error.
// Pure; any thread may call.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace qccl {

// Accepts digits only.
std::optional<uint64_t> parse_count(std::string_view text);
// Returns a number without sign as a multiple of its smallest decimal: "2.5" with three decimals is
// 2500. A number with more decimals than that is refused.
std::optional<uint64_t> parse_decimal(std::string_view text, unsigned decimals);
// Returns the shortest text that parse_decimal reads back to the same value.
std::string write_decimal(uint64_t value, unsigned decimals);
// "4096", "64K", "1MiB", "2g", "1.5M": units are powers of 1024, and a fraction of a byte is cut
// off, as in nccl-tests.
std::optional<uint64_t> parse_bytes(std::string_view text);
// "30", "1.5s", "20us", "10ms", "2m", "1h": a number without a unit counts seconds.
std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text);
// "10gbit", "100G", "2.5Gbps", "100Mb/s": bits a second. "12.5GB/s", "12.5GBps": bytes a second,
// which have a capital B. Units are powers of 1000. Returns bytes a second.
std::optional<uint64_t> parse_rate(std::string_view text);

} // namespace qccl
