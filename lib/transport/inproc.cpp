// Creates the inproc transport: ranks are threads of one process and segments are plain memory. A
// rank may be destroyed while other ranks still read its segment, so every rank holds every
// segment. Each rank calls create_inproc_transport on its own thread; the function blocks in
// `all_gather`.
#include "transport/remote_setup.hpp"
#include "transport/mapping.hpp"

namespace qccl {

namespace {

// A segment and the number of ranks that still hold it. The count includes every rank from the
// start, before the rank has got the segment's address. If the exchange of addresses fails
// half-way, the ranks that never get the address never give up their claims, and the memory stays:
// no rank can know that it is unused.
struct ClaimedSegment {
    Mapping memory;
    std::atomic<uint32_t> claims;
    FlightRecorderFile records; // in rank 0's segment only; for all ranks
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

Result<FlightRecorderFile> make_records(const TransportOptions &options,
                                        const PeerInfoTable &peer_info) {
    if (options.rank != 0) return FlightRecorderFile();
    return FlightRecorderFile::make(options, peer_info.session(), 0, options.size, 0);
}

} // namespace

Result<std::unique_ptr<Transport>> create_inproc_transport(const TransportOptions &options,
                                                           const AllGather &all_gather) {
    const SegmentShape shape = shape_of(options);
    auto memory = make_segment(shape);
    PeerInfo info;
    info.shape = shape;
    SocketBell bell = make_bell(options, info);
    if (!memory) info.fail(memory.error());
    QCCL_TRY(const PeerInfoTable peer_info, PeerInfoTable::gather(info, all_gather, options.hosts));
    auto records = make_records(options, peer_info);
    QCCL_TRY(gather_done(outcome(records), options.size, all_gather));

    Segment(memory->base(), shape).format();
    auto *const mine = new ClaimedSegment{std::move(*memory), options.size, std::move(*records)};
    std::vector<ClaimedSegment *> all(options.size);
    QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));

    std::vector<LocalSegment> near;
    std::vector<std::shared_ptr<const void>> others; // remote ranks' segments, held but not read
    for (uint32_t peer = 0; peer < options.size; peer++) {
        std::shared_ptr<const void> keeper = hold(all[peer]);
        if (peer_info.is_local(options.rank, peer))
            near.push_back({all[peer]->memory.base(), std::move(keeper),
                            view_plain_overflow(all[peer]->overflow)});
        else
            others.push_back(std::move(keeper));
    }
    QCCL_TRY(PeerTable peer_table,
             make_peer_table(peer_info, options.rank, std::move(bell), std::move(near)));
    auto transport = std::make_unique<SharedTransport>(
        "inproc", std::move(peer_table), LivenessMonitor(), peer_info,
        all[0]->records.recorder(options.rank, options, peer_info, {}), options);
    if (!options.hosts.empty())
        QCCL_TRY(connect_remote(*transport, peer_info, options, all_gather));
    return std::unique_ptr<Transport>(std::move(transport));
}

} // namespace qccl
