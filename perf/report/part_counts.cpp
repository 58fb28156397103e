// Implements part_counts.hpp: weighs the parts, and shares the elements out by the weights.
#include "perf/report/part_counts.hpp"

#include "codec/codec.hpp"

#include <algorithm>

namespace qccl::perf {

// Weights are at most this, so that products of two sums of weights do not overflow.
static constexpr uint64_t most_weight = uint64_t{1} << 16;

// Returns amount * share / whole, rounded down.
static uint64_t share_of(uint64_t amount, uint64_t share, uint64_t whole) {
    return amount / whole * share + amount % whole * share / whole;
}

PartCounts::PartCounts(const Request &request) : request_(request) {
    if (!row_of(request.collective).exchanges) share_out();
    measure();
}

std::shared_ptr<const PartCounts> PartCounts::create(const Request &request) {
    return std::shared_ptr<const PartCounts>(new PartCounts(request));
}

// At a root the rank after it has everything, because the root's own part would not travel.
uint64_t PartCounts::weight(uint32_t giver, uint32_t taker) const {
    const CollectiveRow &row = row_of(request_.collective);
    const uint32_t rank = row.gathers ? giver : taker;
    switch (request_.skew) {
    case Skew::equal: return 1;
    case Skew::linear: return uint64_t{rank} + 1;
    case Skew::one: return rank == (row.has_root ? (request_.root + 1) % request_.ranks : 0);
    case Skew::random: break;
    }
    const uint64_t pair = row.exchanges ? uint64_t{giver} << 32 | taker : rank;
    return splitmix64(splitmix64(request_.seed) + pair) % (most_weight + 1);
}

void PartCounts::share_out() {
    const uint64_t total = request_.count * request_.ranks;
    std::vector<uint64_t> ends{0};
    for (uint32_t rank = 0; rank < request_.ranks; rank++)
        ends.push_back(ends.back() + weight(rank, rank));
    const uint64_t whole = std::max<uint64_t>(ends.back(), 1);
    for (const uint64_t end : ends) starts_.push_back(share_of(total, end, whole));
    starts_.back() = total;
}

uint64_t PartCounts::exchanged(uint32_t giver, uint32_t taker) const {
    const uint64_t most = request_.skew == Skew::linear   ? request_.ranks
                          : request_.skew == Skew::random ? most_weight
                                                          : 1;
    return share_of(request_.count, weight(giver, taker), most);
}

uint64_t PartCounts::of(uint32_t giver, uint32_t taker) const {
    if (starts_.empty()) return exchanged(giver, taker) * unit_;
    const uint32_t owner = row_of(request_.collective).gathers ? giver : taker;
    return (starts_[owner + 1] - starts_[owner]) * unit_;
}

uint64_t PartCounts::send_start(uint32_t giver, uint32_t taker) const {
    if (row_of(request_.collective).gathers) return 0;
    if (!starts_.empty()) return starts_[taker] * unit_;
    uint64_t start = 0;
    for (uint32_t before = 0; before < taker; before++) start += of(giver, before);
    return start;
}

uint64_t PartCounts::own_start(uint32_t rank) const {
    return starts_.empty() ? 0 : starts_[rank] * unit_;
}

uint64_t PartCounts::sent(uint32_t rank) const {
    if (row_of(request_.collective).gathers) return of(rank, rank);
    return starts_.empty() ? send_start(rank, request_.ranks) : starts_.back() * unit_;
}

uint64_t PartCounts::received(uint32_t rank) const {
    if (row_of(request_.collective).scatters) return of(rank, rank);
    if (!starts_.empty()) return starts_.back() * unit_;
    uint64_t all = 0;
    for (uint32_t giver = 0; giver < request_.ranks; giver++) all += of(giver, rank);
    return all;
}

// A part that many ranks need leaves its own rank once, and one that is summed enters it once.
void PartCounts::measure() {
    const CollectiveRow &row = row_of(request_.collective);
    is_symmetric_ = row.exchanges;
    for (uint32_t rank = 0; rank < request_.ranks; rank++) {
        const uint64_t out = sent(rank), in = received(rank), own = of(rank, rank);
        most_sent_ = std::max(most_sent_, out);
        most_received_ = std::max(most_received_, in);
        const bool is_root = row.has_root && rank == request_.root,
                   is_end = row.has_root && !is_root;
        const uint64_t leaving = row.gathers ? (is_root ? 0 : out) : is_end ? 0 : out - own;
        const uint64_t entering = row.scatters ? (is_root ? 0 : in) : is_end ? 0 : in - own;
        if (request_.ranks > 1) busiest_ = std::max({busiest_, leaving, entering});
        for (uint32_t other = 0; is_symmetric_ && other < rank; other++)
            is_symmetric_ = of(rank, other) == of(other, rank);
    }
}

std::shared_ptr<const PartCounts> PartCounts::in_reals(unsigned reals) const {
    auto scaled = std::make_shared<PartCounts>(*this);
    scaled->unit_ *= reals;
    return scaled;
}

} // namespace qccl::perf
