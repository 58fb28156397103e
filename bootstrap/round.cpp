// Collects the ranks' bytes of one all-gather.
#include "bootstrap/round.hpp"

#include <algorithm>

namespace qccl {

Done Round::add(uint32_t rank, std::span<const std::byte> mine) {
    if (!has_begun()) {
        first_ = rank;
        bytes_ = mine.size();
        gathered_.resize(bytes_ * came_.size());
    }
    if (mine.size() != bytes_)
        return Error::make(Code::mismatch, "rank %u gives %zu bytes to an exchange, rank %u %zu",
                           rank, mine.size(), first_, bytes_)
            .at_rank(rank)
            .compared(static_cast<int64_t>(bytes_), static_cast<int64_t>(mine.size()));
    if (came_[rank])
        return Error::make(Code::invalid_usage, "rank %u gives twice to one exchange", rank)
            .at_rank(rank);

    std::copy(mine.begin(), mine.end(),
              gathered_.begin() + static_cast<std::ptrdiff_t>(rank * bytes_));
    came_[rank] = true;
    count_++;
    return {};
}

Payload Round::take() {
    auto whole = std::make_shared<const std::vector<std::byte>>(std::move(gathered_));
    gathered_ = {};
    std::fill(came_.begin(), came_.end(), false);
    count_ = 0;
    return whole;
}

} // namespace qccl
