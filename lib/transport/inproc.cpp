// inproc: ranks are threads of one process, segments plain memory. A rank may be destroyed while
// others still read its segment, so everyone holds every segment.
#include "transport/far_side.hpp"
#include "transport/mapping.hpp"

namespace qccl {

namespace {

// A segment and the number of ranks that still hold it. Every rank's claim counts from the start,
// also before it has heard of the segment: if the exchange of addresses fails half-way, the claims
// of those who never hear of it keep the memory, as nobody can know that it is unused.
struct ClaimedSegment {
    Mapping memory;
    std::atomic<uint32_t> claims;
    RecordRoom records; // rank 0's: of all ranks
    PlainOverflow overflow{};
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

Result<RecordRoom> make_records(const TransportOptions &options, const Roster &roster) {
    if (options.rank != 0) return RecordRoom();
    return RecordRoom::make(options, roster.session(), 0, options.size, 0);
}

} // namespace

Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather) {
    const SegmentShape shape = shape_of(options);
    auto memory = make_segment(shape);
    Introduction introduction;
    introduction.shape = shape;
    SocketBell bell = make_bell(options, introduction);
    if (!memory) introduction.fail(memory.error());
    QCCL_TRY(const Roster roster, Roster::gather(introduction, all_gather, options.hosts));
    auto records = make_records(options, roster);
    QCCL_TRY(gather_done(outcome(records), options.size, all_gather));

    Segment(memory->base(), shape).format();
    auto *const mine = new ClaimedSegment{std::move(*memory), options.size, std::move(*records)};
    std::vector<ClaimedSegment *> all(options.size);
    QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));

    std::vector<NearSegment> near;
    std::vector<std::shared_ptr<const void>> others; // which this rank does not even look at
    for (uint32_t peer = 0; peer < options.size; peer++) {
        std::shared_ptr<const void> keeper = hold(all[peer]);
        if (roster.is_near(options.rank, peer))
            near.push_back({all[peer]->memory.base(), std::move(keeper),
                            view_plain_overflow(all[peer]->overflow)});
        else
            others.push_back(std::move(keeper));
    }
    QCCL_TRY(Party party, make_party(roster, options.rank, std::move(bell), std::move(near)));
    auto transport = std::make_unique<SharedTransport>(
        "inproc", std::move(party), Lifelines(), roster,
        all[0]->records.recorder(options.rank, options, roster, {}), options);
    if (!options.hosts.empty()) QCCL_TRY(reach_hosts(*transport, roster, options, all_gather));
    return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace qccl
