// Numbers as people read them in a table or a sentence. Pure.
#pragma once

#include <string>

namespace qccl::perf {

// In `width` columns, as nccl-tests fits it: two decimals or fewer, the larger it is, then an
// exponent.
std::string fitted(double value, int width);
// "1.50 MB": units are powers of 1024.
std::string memory_text(double bytes);
// "12.3 ms", with three digits.
std::string time_text(double ns);

} // namespace qccl::perf
