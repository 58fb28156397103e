// Measures the parts of a communicator's creation, and words the times for the log. Used by the
// thread that creates the communicator. Does not block.
#pragma once

#include "base/clock.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace qccl {

class CreationTimes {
public:
    explicit CreationTimes(TimePoint start) : start_(start), part_began_(start) {}

    // Ends a part of the creation; the next one begins.
    void end(const char *part) {
        const TimePoint now = std::chrono::steady_clock::now();
        parts_.push_back({part, now - part_began_});
        part_began_ = now;
    }
    // Returns the whole time and the largest parts: "45.2 ms: topology 30.1 ms, meeting 10.2 ms".
    std::string print() const {
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
    // Returns the time of the first part.
    std::string print_first() const { return print_time(parts_.front().took); }

private:
    struct Part {
        const char *name;
        std::chrono::nanoseconds took;
    };

    TimePoint start_, part_began_;
    std::vector<Part> parts_;
};

} // namespace qccl
