// What the ranks of a collective do by an algorithm, in numbers of chunks: counted on the
// schedules, for the cost model. Pure.
#pragma once

#include "base/result.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "plan/shared_links.hpp"

#include <cstdint>

namespace qccl {

// A collective to be done; equal on all ranks.
struct Problem {
    Collective collective = Collective::all_reduce;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1;
    uint32_t root = 0;
    DataType type = DataType::float32;
    Codec codec;                    // already checked with check_codec
    const Places *places = nullptr; // none: all ranks are on one host

    Team team(uint32_t rank = 0) const {
        return {.size = ranks, .rank = rank, .root = root, .places = places};
    }
    bool has_hosts() const { return places && places->hosts().groups() > 1; }
};

// How many whole chunks a rank moves and computes on.
struct ChunkCounts {
    double sends = 0, recvs = 0;
    double encodes = 0, decodes = 0, decode_adds = 0;
    double copies = 0; // adding counts as what it reads
    // Of these, those with the inner tiers' codec.
    double inner_sends = 0, inner_encodes = 0, inner_decodes = 0, inner_decode_adds = 0;
    double far_sends = 0, far_recvs = 0; // to and from other hosts
    double far_series = 0;               // of both, as schedule/message_series has them
    // Of these, those with the inner tiers' codec: between hosts of one rack.
    double far_inner_sends = 0, far_inner_recvs = 0;
};

struct Tally {
    uint32_t chunks = 0; // that the algorithm cuts the tensor into
    uint32_t outbox = 0;
    uint32_t turns = 0;                // how often the busiest rank waits for messages
    uint32_t rounds = 0;               // as the algorithm's row has them
    double noise = 0, inner_noise = 0; // likewise, of a codec that loses anything
    ChunkCounts busiest, mean;         // over the ranks; of the busiest, each count by itself
    // The most of all ranks of a host together, to other hosts, and of that with the inner codec.
    double host_sends = 0, host_inner_sends = 0;
    uint32_t far_peers = 0; // the most ranks of other hosts that a rank sends to
    double far_rounds = 0;  // of the algorithm's rounds, those between hosts
    // Where links between ranks of a host are known: what the busiest of them takes for each byte
    // of a chunk, for what travels with the call's codec and with the inner tiers'; and the slowest
    // of those that are used, for each byte that it carries. 0: unknown.
    double near_line_ns = 0, inner_near_line_ns = 0, near_hop_ns = 0;
    // Where lines of racks are known: what the busiest takes for each byte of a chunk.
    double rack_line_ns = 0;
};

// An error says why there is no such schedule.
Result<Tally> tally(const Algorithm &algorithm, const Problem &problem,
                    const SharedLinks &links = {});

} // namespace qccl
