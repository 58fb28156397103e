// Exchanges properties and outcomes, each in one all-gather, and checks them with the same result
// on every rank.
#include "transport/peer_info.hpp"

#include "base/random_names.hpp"
#include "base/system.hpp"
#include "base/text.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <limits>
#include <map>
#include <unistd.h>

namespace qccl {

namespace {

Done check_shape(const SegmentShape &reference, const SegmentShape &shape, uint32_t rank) {
    const struct {
        const char *what;
        uint64_t expected, got;
    } parts[] = {
        {"ranks", reference.ranks, shape.ranks},
        {"slots", reference.slots, shape.slots},
        {"bytes in a line", reference.eager_slot_bytes, shape.eager_slot_bytes},
        {"bytes in the outbox", reference.outbox_bytes, shape.outbox_bytes},
        {"bytes in the inbox", reference.inbox_bytes, shape.inbox_bytes},
    };
    for (const auto &part : parts)
        if (part.expected != part.got)
            return Error::make(Code::mismatch, "rank %u has %" PRIu64 " %s, rank 0 has %" PRIu64,
                               rank, part.got, part.what, part.expected)
                .at_rank(rank)
                .compared(static_cast<int64_t>(part.expected), static_cast<int64_t>(part.got));
    return {};
}

} // namespace

SegmentShape shape_of(const TransportOptions &options) {
    return {.ranks = options.size,
            .slots = options.slots,
            .eager_slot_bytes = options.eager_slot_bytes,
            .outbox_bytes = options.outbox_bytes,
            .inbox_bytes = options.hosts.empty() ? 0 : options.outbox_bytes,
            .record_bytes = record_bytes(options.size),
            .calls = options.hosts.empty() ? calls_kept_on_host : most_calls_kept};
}

Done RankOutcome::of_rank(uint32_t rank) const {
    if (!has_failed()) return {};
    Error received = error;
    return Error::make(received.code, "rank %u: %s", rank, received.make_printable().text)
        .at_rank(rank)
        .compared(received.expected, received.got);
}

Result<PeerInfoTable> PeerInfoTable::gather(PeerInfo mine, const AllGather &all_gather,
                                            std::vector<uint32_t> hosts) {
    mine.pid = getpid();
    QCCL_TRY(draw_bytes(std::as_writable_bytes(std::span(&mine.session, 1))));
    mine.may_be_fenced = register_fences();
    // If the machine has more cores than a set can name, the set stays empty and the rank does not
    // spin.
    sched_getaffinity(0, sizeof mine.cores, &mine.cores);
    const auto boot = boot_id();
    if (mine.machine == 0 && boot && !boot->empty()) mine.machine = hash_text(*boot);

    PeerInfoTable peer_info;
    peer_info.hosts_ = std::move(hosts);
    std::vector<PeerInfo> &all = peer_info.infos_;
    all.resize(mine.shape.ranks);
    QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
    for (uint32_t peer = 0; peer < peer_info.size(); peer++)
        if (all[peer].magic != all[0].magic)
            return Error::make(
                       Code::mismatch,
                       "rank %u speaks another version of the shared-memory protocol than rank 0",
                       peer)
                .at_rank(peer);
    for (uint32_t peer = 0; peer < peer_info.size(); peer++)
        QCCL_TRY(all[peer].outcome.of_rank(peer));
    QCCL_TRY(peer_info.check_users());
    for (uint32_t peer = 0; peer < peer_info.size(); peer++)
        QCCL_TRY(check_shape(all[0].shape, all[peer].shape, peer));
    QCCL_TRY(peer_info.check_memory());
    return peer_info;
}

std::vector<uint32_t> PeerInfoTable::local_ranks(uint32_t rank) const {
    std::vector<uint32_t> ranks;
    for (uint32_t peer = 0; peer < size(); peer++)
        if (is_local(rank, peer)) ranks.push_back(peer);
    return ranks;
}

std::vector<uint32_t> PeerInfoTable::host_leaders() const {
    std::vector<uint32_t> ranks(size(), 0);
    std::map<uint32_t, uint32_t> first_of;
    for (uint32_t rank = 0; rank < hosts_.size(); rank++)
        ranks[rank] = first_of.try_emplace(hosts_[rank], rank).first->second;
    return ranks;
}

Done PeerInfoTable::check_users() const {
    const std::vector<uint32_t> first_of = host_leaders();
    for (uint32_t peer = 0; peer < size(); peer++) {
        const uint32_t first = first_of[peer];
        const uint32_t user = infos_[peer].user, expected = infos_[first].user;
        if (user == expected) continue;
        return Error::make(Code::mismatch,
                           "rank %u runs as user %u, rank %u as user %u: ranks of one host must "
                           "belong to one user",
                           peer, user, first, expected)
            .at_rank(peer)
            .compared(expected, user);
    }
    return {};
}

// Each rank alone may find enough memory where all ranks of a host together do not.
Done PeerInfoTable::check_memory() const {
    QCCL_TRY(const size_t bytes, infos_[0].shape.segment_bytes());
    const std::vector<uint32_t> first_of = host_leaders();
    std::vector<uint64_t> free(size(), UINT64_MAX), ranks(size(), 0);
    for (uint32_t rank = 0; rank < size(); rank++) {
        const uint32_t first = first_of[rank];
        free[first] = std::min(free[first], infos_[rank].free_bytes);
        ranks[first]++;
    }
    for (uint32_t first = 0; first < size(); first++) {
        if (ranks[first] == 0 || bytes <= free[first] / ranks[first]) continue;
        static constexpr double mib = 1 << 20;
        return Error::make(Code::system_error,
                           "cannot get %.1f MiB of shared memory for each of %" PRIu64
                           " ranks: only %.1f MiB are free",
                           static_cast<double>(bytes) / mib, ranks[first],
                           static_cast<double>(free[first]) / mib);
    }
    return {};
}

Fences PeerInfoTable::fences(uint32_t rank) const {
    for (const uint32_t peer : local_ranks(rank))
        if (!infos_[peer].may_be_fenced) return Fences::both;
    return Fences::by_sleeper;
}

std::vector<int64_t> PeerInfoTable::pids() const {
    std::vector<int64_t> pids;
    for (const PeerInfo &info : infos_) pids.push_back(info.pid);
    return pids;
}

std::vector<SocketBell::Name> PeerInfoTable::bells() const {
    std::vector<SocketBell::Name> names;
    for (const PeerInfo &info : infos_) names.push_back(info.bell);
    return names;
}

bool PeerInfoTable::is_on_same_machine(uint32_t rank, uint32_t other) const {
    const uint64_t machine = infos_[rank].machine;
    return is_local(rank, other) || (machine != 0 && machine == infos_[other].machine);
}

double PeerInfoTable::oversubscription(uint32_t rank) const {
    const cpu_set_t &ours = infos_[rank].cores;
    if (CPU_COUNT(&ours) == 0) return std::numeric_limits<double>::infinity();
    int sharers = 0;
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (!is_on_same_machine(rank, peer)) continue;
        cpu_set_t common;
        CPU_AND(&common, &ours, &infos_[peer].cores);
        if (CPU_COUNT(&common) > 0) sharers++;
    }
    return static_cast<double>(sharers) / CPU_COUNT(&ours);
}

bool PeerInfoTable::may_spin(uint32_t rank) const { return oversubscription(rank) <= 1; }

double PeerInfoTable::ranks_per_core() const {
    double most = 1;
    for (uint32_t rank = 0; rank < size(); rank++)
        if (const double own = oversubscription(rank); std::isfinite(own))
            most = std::max(most, own);
    return most;
}

bool may_explain(const Error &failure, const Error &own) {
    return own.code == Code::peer_lost && own.rank != Error::no_rank &&
           failure.rank != Error::no_rank && failure.rank != own.rank;
}

Done gather_done(const Done &mine, uint32_t size, const AllGather &all_gather) {
    RankOutcome outcome;
    if (!mine) outcome.error = mine.error();
    std::vector<RankOutcome> all(size);
    if (const Done gathered = all_gather(&outcome, all.data(), sizeof outcome); !gathered)
        // This rank's own error says more, unless it follows from what the others have found.
        return mine || may_explain(gathered.error(), mine.error()) ? gathered : mine;
    for (uint32_t peer = 0; peer < size; peer++) QCCL_TRY(all[peer].of_rank(peer));
    return {};
}

} // namespace qccl
