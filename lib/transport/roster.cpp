// Introductions and outcomes, each one all-gather, judged alike on every rank.
#include "transport/roster.hpp"

#include "base/process.hpp"
#include "base/short_text.hpp"
#include "transport/random_bytes.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <limits>
#include <map>
#include <unistd.h>

namespace qccl {

namespace {

// As every rank words it, whose error it is first.
Error error_of(uint32_t rank, const Error &error) {
    Error named = Error::make(error.code, "rank %u: %s", rank, error.text);
    return named.at_rank(rank).compared(error.expected, error.got);
}

Done check_shape(const SegmentShape &reference, const SegmentShape &shape, uint32_t rank) {
    const struct {
        const char *what;
        uint64_t expected, got;
    } parts[] = {
        {"ranks", reference.ranks, shape.ranks},
        {"slots", reference.slots, shape.slots},
        {"bytes in a line", reference.line_bytes, shape.line_bytes},
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
            .line_bytes = options.line_bytes,
            .outbox_bytes = options.outbox_bytes,
            .inbox_bytes = options.hosts.empty() ? 0 : options.outbox_bytes,
            .notice_bytes = notice_bytes(options.size)};
}

Result<Roster> Roster::gather(Introduction mine, const AllGather &all_gather,
                              std::vector<uint32_t> hosts) {
    mine.pid = getpid();
    QCCL_TRY(draw_bytes(std::as_writable_bytes(std::span(&mine.session, 1))));
    mine.may_be_fenced = register_fences();
    // Where the machine has more cores than a set can name, the set stays empty and nobody spins.
    sched_getaffinity(0, sizeof mine.cores, &mine.cores);
    const auto boot = boot_id();
    if (mine.machine == 0 && boot && !boot->empty()) mine.machine = hash_text(*boot);

    Roster roster;
    roster.hosts_ = std::move(hosts);
    std::vector<Introduction> &all = roster.introductions_;
    all.resize(mine.shape.ranks);
    QCCL_TRY(all_gather(&mine, all.data(), sizeof mine));
    for (uint32_t peer = 0; peer < roster.size(); peer++)
        if (all[peer].magic != all[0].magic)
            return Error::make(
                       Code::mismatch,
                       "rank %u speaks another version of the shared-memory protocol than rank 0",
                       peer)
                .at_rank(peer);
    for (uint32_t peer = 0; peer < roster.size(); peer++)
        if (all[peer].has_failed) return error_of(peer, all[peer].failure);
    QCCL_TRY(roster.check_users());
    for (uint32_t peer = 0; peer < roster.size(); peer++)
        QCCL_TRY(check_shape(all[0].shape, all[peer].shape, peer));
    QCCL_TRY(roster.check_memory());
    return roster;
}

std::vector<uint32_t> Roster::near_ranks(uint32_t rank) const {
    std::vector<uint32_t> ranks;
    for (uint32_t peer = 0; peer < size(); peer++)
        if (is_near(rank, peer)) ranks.push_back(peer);
    return ranks;
}

std::vector<uint32_t> Roster::firsts() const {
    std::vector<uint32_t> ranks(size(), 0);
    std::map<uint32_t, uint32_t> first_of;
    for (uint32_t rank = 0; rank < hosts_.size(); rank++)
        ranks[rank] = first_of.try_emplace(hosts_[rank], rank).first->second;
    return ranks;
}

Done Roster::check_users() const {
    const std::vector<uint32_t> first_of = firsts();
    for (uint32_t peer = 0; peer < size(); peer++) {
        const uint32_t first = first_of[peer];
        const uint32_t user = introductions_[peer].user, expected = introductions_[first].user;
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

// Each rank alone would find room, and all of a host together would not.
Done Roster::check_memory() const {
    QCCL_TRY(const size_t bytes, introductions_[0].shape.segment_bytes());
    const std::vector<uint32_t> first_of = firsts();
    std::vector<uint64_t> free(size(), UINT64_MAX), ranks(size(), 0);
    for (uint32_t rank = 0; rank < size(); rank++) {
        const uint32_t first = first_of[rank];
        free[first] = std::min(free[first], introductions_[rank].free_bytes);
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

Fences Roster::fences(uint32_t rank) const {
    for (const uint32_t peer : near_ranks(rank))
        if (!introductions_[peer].may_be_fenced) return Fences::both;
    return Fences::by_sleeper;
}

std::vector<int64_t> Roster::pids() const {
    std::vector<int64_t> pids;
    for (const Introduction &introduction : introductions_) pids.push_back(introduction.pid);
    return pids;
}

std::vector<SocketBell::Name> Roster::bells() const {
    std::vector<SocketBell::Name> names;
    for (const Introduction &introduction : introductions_) names.push_back(introduction.bell);
    return names;
}

bool Roster::is_on_same_machine(uint32_t rank, uint32_t other) const {
    const uint64_t machine = introductions_[rank].machine;
    return is_near(rank, other) || (machine != 0 && machine == introductions_[other].machine);
}

double Roster::crowding(uint32_t rank) const {
    const cpu_set_t &ours = introductions_[rank].cores;
    if (CPU_COUNT(&ours) == 0) return std::numeric_limits<double>::infinity();
    int sharers = 0;
    for (uint32_t peer = 0; peer < size(); peer++) {
        if (!is_on_same_machine(rank, peer)) continue;
        cpu_set_t common;
        CPU_AND(&common, &ours, &introductions_[peer].cores);
        if (CPU_COUNT(&common) > 0) sharers++;
    }
    return static_cast<double>(sharers) / CPU_COUNT(&ours);
}

bool Roster::may_spin(uint32_t rank) const { return crowding(rank) <= 1; }

double Roster::ranks_per_core() const {
    double most = 1;
    for (uint32_t rank = 0; rank < size(); rank++)
        if (const double own = crowding(rank); std::isfinite(own)) most = std::max(most, own);
    return most;
}

Done gather_done(const Done &mine, uint32_t size, const AllGather &all_gather) {
    struct Outcome {
        uint64_t has_failed = 0;
        Error error;
    } outcome;
    if (!mine) outcome = {1, mine.error()};
    std::vector<Outcome> all(size);
    if (const Done gathered = all_gather(&outcome, all.data(), sizeof outcome); !gathered)
        return mine ? gathered : mine; // what went wrong here says more
    for (uint32_t peer = 0; peer < size; peer++)
        if (all[peer].has_failed) return error_of(peer, all[peer].error);
    return {};
}

} // namespace qccl
