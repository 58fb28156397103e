// Counts, in chunks, what the ranks of a collective do by an algorithm. The schedules of the ranks
// are written for that, and the cost model computes with the counts. Pure; any thread.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/shared_links.hpp"

#include <cstdint>

namespace qccl {

// A collective to plan; equal on all ranks.
struct Problem {
    Collective collective = Collective::all_reduce;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1;
    uint32_t root = 0;
    DataType type = DataType::float32;
    Codec codec;                          // already checked with check_codec
    const RankTopology *places = nullptr; // null: all ranks are on one host

    Team team(uint32_t rank = 0) const {
        return {.size = ranks, .rank = rank, .root = root, .places = places};
    }
    bool has_hosts() const { return places && places->hosts().groups() > 1; }
};

// How many whole chunks a rank moves and computes on.
struct ChunkCounts {
    double sends = 0, recvs = 0;
    double encodes = 0, decodes = 0, decode_adds = 0;
    double copies = 0; // adding counts the chunks that it reads
    // The part of these that uses the inner tiers' codec.
    double inner_sends = 0, inner_encodes = 0, inner_decodes = 0, inner_decode_adds = 0;
    double far_sends = 0, far_recvs = 0; // to and from other hosts
    double far_series = 0;               // series of both, as in schedule/message_series
    // The part of these that uses the inner tiers' codec: between hosts of one rack.
    double far_inner_sends = 0, far_inner_recvs = 0;
};

struct StepCounts {
    uint32_t chunks = 0; // into which the algorithm cuts the tensor
    // Wire slots for what a rank encodes; the most of all ranks.
    uint32_t outbox = 0;
    uint32_t turns = 0;                // how often the busiest rank waits for messages
    uint32_t rounds = 0;               // as in the algorithm's row
    double noise = 0, inner_noise = 0; // the same; 0 for a lossless codec
    ChunkCounts busiest, mean;         // over ranks; busiest: the maximum of each count by itself
    // What the ranks of the busiest host send to other hosts together, and the part of that with
    // the inner tiers' codec.
    double host_sends = 0, host_inner_sends = 0;
    uint32_t far_peers = 0; // most ranks of other hosts that a rank sends to
    double far_rounds = 0;  // rounds of the algorithm that cross hosts
    // If the links between a host's ranks are known: the time of the busiest link for each byte of
    // a chunk, for what travels with the call's codec and for what travels with the inner tiers'
    // codec; and the time of the slowest link in use for each byte that it carries. 0: unknown.
    double near_line_ns = 0, inner_near_line_ns = 0, near_hop_ns = 0;
    // If the links of racks are known: the time of the busiest link for each byte of a chunk.
    double rack_line_ns = 0;
};

// Counts the steps. `links`: links whose load is counted one by one. An error says why there is no
// such schedule.
Result<StepCounts> step_counts(const Algorithm &algorithm, const Problem &problem,
                               const SharedLinks &links = {});

} // namespace qccl
