// Formats numbers for tables and sentences. Used by qccl-perf and qccl-info. Any thread; nothing
// blocks.
#pragma once

#include <string>

namespace qccl::perf {

// Formats into `width` columns like nccl-tests: the larger the value, the fewer of at most two
// decimals, then an exponent.
std::string fitted(double value, int width);
// Returns a text such as "1.50 MB"; units are powers of 1024.
std::string memory_text(double bytes);
// Returns a text such as "12.3 ms", with three digits.
std::string time_text(double ns);

} // namespace qccl::perf
