// Puts the missing ranks into words. Long lists are cut short.
#include "bootstrap/missing.hpp"

#include <algorithm>

namespace qccl {

Missing missing_ranks(const std::vector<bool> &came) {
    static constexpr size_t most_named = 8;
    const auto total = static_cast<size_t>(std::count(came.begin(), came.end(), false));
    const size_t named = total > most_named + 1 ? most_named : total;
    Missing missing;
    size_t seen = 0;
    for (size_t rank = 0; rank < came.size() && seen < named; rank++) {
        if (came[rank]) continue;
        const bool is_last = ++seen == total;
        if (missing.first == Error::no_rank) missing.first = static_cast<int32_t>(rank);
        missing.text += seen == 1 ? (total == 1 ? "rank " : "ranks ") : is_last ? " and " : ", ";
        missing.text += std::to_string(rank);
    }
    if (seen < total) missing.text += " and " + std::to_string(total - seen) + " more";
    return missing;
}

uint32_t lowest_rank(const std::vector<bool> &came) {
    return static_cast<uint32_t>(std::find(came.begin(), came.end(), true) - came.begin());
}

Error late_error(const Missing &missing, uint32_t size, std::chrono::nanoseconds timeout) {
    const double seconds = std::chrono::duration<double>(timeout).count();
    return Error::make(Code::timeout, "%s of %u did not come within %g s", missing.text.c_str(),
                       size, seconds)
        .at_rank(missing.first);
}

} // namespace qccl
