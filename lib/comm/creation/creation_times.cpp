// Words the times of a communicator's creation.
#include "comm/creation/creation_times.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <functional>

namespace qccl {

void CreationTimes::end(const char *part) {
    const TimePoint now = std::chrono::steady_clock::now();
    parts_.push_back({part, now - part_began_});
    part_began_ = now;
}

std::string CreationTimes::print() const {
    constexpr size_t most_shown = 3;
    std::vector<Part> parts = parts_;
    std::ranges::stable_sort(parts, std::ranges::greater(), &Part::took);
    std::string text = print_time(part_began_ - start_);
    for (size_t i = 0; i < std::min(parts.size(), most_shown); i++)
        text.append(i == 0 ? ": " : ", ")
            .append(parts[i].name)
            .append(" ")
            .append(print_time(parts[i].took));
    return text;
}

std::string CreationTimes::print_first() const { return print_time(parts_.front().took); }

} // namespace qccl
