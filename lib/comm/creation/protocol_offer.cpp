// Compares the offers of all ranks with rank 0's.
#include "comm/creation/protocol_offer.hpp"

#include <algorithm>

namespace qccl {

static Error refuse_offer(const ProtocolOffer &of_rank_0, const ProtocolOffer &offer, size_t rank) {
    if (offer.byte_order != ProtocolOffer::expected_byte_order)
        return Error::make(Code::mismatch, "byte order: rank %zu has another one than rank 0", rank)
            .at_rank(static_cast<int64_t>(rank));
    return Error::make(Code::mismatch,
                       "protocol: rank %zu (version %u) speaks %u to %u, rank 0 (version %u) "
                       "speaks %u to %u",
                       rank, offer.version, offer.oldest, offer.newest, of_rank_0.version,
                       of_rank_0.oldest, of_rank_0.newest)
        .at_rank(static_cast<int64_t>(rank))
        .compared(of_rank_0.newest, offer.newest);
}

// Every rank compares the others with rank 0, in rank 0's byte order, so the sentence is the same
// on every rank.
static bool is_readable(const ProtocolOffer &of_rank_0, const ProtocolOffer &offer) {
    return offer.magic == of_rank_0.magic && offer.byte_order == of_rank_0.byte_order;
}

Done check_offers(std::span<const ProtocolOffer> all) {
    uint32_t oldest = all[0].oldest, newest = all[0].newest;
    for (size_t rank = 0; rank < all.size(); rank++) {
        const ProtocolOffer &offer = all[rank];
        if (!is_readable(all[0], offer)) return refuse_offer(all[0], offer, rank);
        oldest = std::max(oldest, offer.oldest);
        newest = std::min(newest, offer.newest);
        if (oldest > newest) return refuse_offer(all[0], offer, rank);
        if (offer.rank != rank || offer.size != all.size())
            return invalid_argument(
                       "rank %zu of %zu came as rank %u of %u; the all-gather must give "
                       "contributions in rank order",
                       rank, all.size(), offer.rank, offer.size)
                .at_rank(static_cast<int64_t>(rank))
                .compared(static_cast<int64_t>(rank), offer.rank);
    }
    return {};
}

} // namespace qccl
