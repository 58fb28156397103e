// inproc: ranks are threads of one process, segments plain memory. A rank may be destroyed while
// others still read its segment, so everyone holds every segment.
#include "transport/mapping.hpp"
#include "transport/roster.hpp"
#include "transport/shared_transport.hpp"

namespace qccl {

namespace {

// A segment and the number of ranks that still hold it. Every rank's claim counts from the start,
// also before it has heard of the segment: if the exchange of addresses fails half-way, the claims
// of those who never hear of it keep the memory, as nobody can know that it is unused.
struct ClaimedSegment {
    Mapping memory;
    std::atomic<uint32_t> claims;
};

std::shared_ptr<const void> hold(ClaimedSegment *segment) {
    return std::shared_ptr<ClaimedSegment>(segment, [](ClaimedSegment *held) {
        if (held->claims.fetch_sub(1, std::memory_order_acq_rel) == 1) delete held;
    });
}

Result<Mapping> make_segment(const SegmentShape &shape) {
    QCCL_TRY(const size_t bytes, shape.segment_bytes());
    return Mapping::anonymous(bytes);
}

} // namespace

Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather) {
    const SegmentShape shape{options.size, options.slots, options.line_bytes, options.outbox_bytes};
    auto memory = make_segment(shape);
    Introduction introduction;
    introduction.shape = shape;
    if (!memory) introduction.fail(memory.error());
    QCCL_TRY(const Roster roster, Roster::gather(introduction, all_gather));

    Segment(memory->base(), shape).format();
    auto *const mine = new ClaimedSegment{std::move(*memory), options.size};
    std::vector<ClaimedSegment *> all(options.size);
    QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));

    Party party(options.rank, roster.fences(), roster.pids());
    for (ClaimedSegment *const segment : all) {
        party.segments.emplace_back(segment->memory.base(), shape);
        party.keepers.push_back(hold(segment));
    }
    return std::unique_ptr<Transport>(std::make_unique<SharedTransport>(
        "inproc", std::move(party), Lifelines(), roster, options));
}

} // namespace qccl
