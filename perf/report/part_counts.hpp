// The counts of the parts of a v-form, for a skew that the command line names. An Operation that is
// a v-form has one PartCounts, which all ranks compute alike. The parts follow one another in each
// buffer. Any thread; nothing blocks.
#pragma once

#include "base/types.hpp"
#include "perf/cli/perf_arguments.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace qccl::perf {

class PartCounts {
public:
    struct Request {
        Collective collective = Collective::all_gather; // whose v-form it is
        Skew skew = Skew::linear;
        uint64_t seed = 0; // of random counts
        uint32_t ranks = 1, root = 0;
        uint64_t count = 0; // of each part if all are equal
    };
    // Skewed parts have together as many elements as equal ones. Only those of an all-to-all have
    // fewer: its largest part has `count`, so that no rank receives more than with equal parts.
    static std::shared_ptr<const PartCounts> create(const Request &request);

    // Returns the count of the part that `giver` has for `taker`, and where it starts in the
    // giver's send buffer.
    uint64_t of(uint32_t giver, uint32_t taker) const;
    uint64_t send_start(uint32_t giver, uint32_t taker) const;
    // Return the elements of the rank's buffers, and the most that any rank has. Of a gather or a
    // scatter, whatever the root is.
    uint64_t sent(uint32_t rank) const;
    uint64_t received(uint32_t rank) const;
    uint64_t most_sent() const { return most_sent_ * unit_; }
    uint64_t most_received() const { return most_received_ * unit_; }
    // Returns where the rank's own part starts in a buffer with the parts of all ranks.
    uint64_t own_start(uint32_t rank) const;
    // Returns the elements that have to enter or leave the rank which has the most of them.
    uint64_t busiest() const { return busiest_ * unit_; }
    // Whether every two ranks have as much for each other, so that a call can be in place.
    bool is_symmetric() const { return is_symmetric_; }
    // Returns the same parts in another unit, of which an element has `reals`.
    std::shared_ptr<const PartCounts> in_reals(unsigned reals) const;

private:
    explicit PartCounts(const Request &request);
    uint64_t weight(uint32_t giver, uint32_t taker) const;
    uint64_t exchanged(uint32_t giver, uint32_t taker) const;
    void share_out();
    void measure();

    Request request_;
    uint64_t unit_ = 1;
    std::vector<uint64_t> starts_; // of each rank's part, and the end; empty: ranks exchange parts
    uint64_t most_sent_ = 0, most_received_ = 0, busiest_ = 0;
    bool is_symmetric_ = false;
};

} // namespace qccl::perf
