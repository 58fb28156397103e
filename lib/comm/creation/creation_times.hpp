// Measures the parts of a communicator's creation for the log. Used by the thread that creates the
// communicator.
#pragma once

#include "base/clock.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace qccl {

class CreationTimes {
public:
    explicit CreationTimes(TimePoint start) : start_(start), part_began_(start) {}

    // Ends a part of the creation; the next one begins.
    void end(const char *part);
    // Returns the whole time and the largest parts: "45.2 ms: topology 30.1 ms, meeting 10.2 ms".
    std::string print() const;
    // Returns the time of the first part.
    std::string print_first() const;

private:
    struct Part {
        const char *name;
        std::chrono::nanoseconds took;
    };

    TimePoint start_, part_began_;
    std::vector<Part> parts_;
};

} // namespace qccl
