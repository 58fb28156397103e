// Counts, in chunks, what the ranks of a collective do by an algorithm, and how busy they keep the
// links that messages share. The schedules of the ranks are written for that, and the cost model
// computes with the counts.
//
// Shared links are the links that the planner looks at one by one: those between the ranks of a
// host, which between GPUs differ from pair to pair, and those of racks. The topology graph
// provides them; they are equal on all ranks.
//
// Used by the cost model, the planner and the topology graph. Pure; any thread, nothing blocks.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "base/types.hpp"
#include "codec/codec.hpp"
#include "coll/algorithm.hpp"
#include "schedule/rank_topology.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace qccl {

// ---- Shared links

struct LocalLinks {
    // Hosts that are built alike.
    struct Kind {
        uint32_t parts = 0;                      // places where its ranks can be
        std::vector<double> byte_ns;             // by link, each direction for itself; 0: unknown
        std::vector<std::vector<uint32_t>> ways; // by from * parts + to: the links on the way

        bool operator==(const Kind &) const = default;
    };

    std::vector<Kind> kinds;
    std::vector<uint32_t> kind_of, part_of; // by rank

    // Returns the links on the way of a message between two ranks of a host.
    const std::vector<uint32_t> &way(uint32_t from, uint32_t to) const {
        const Kind &kind = kinds[kind_of[from]];
        return kind.ways[part_of[from] * kind.parts + part_of[to]];
    }
};

// The networks of a job form a tree: every network but the first has a link to the one that
// contains it. All messages that leave a rack, or a site, share its link.
struct RackLines {
    // For each network: the network that contains it, which stands before it. The first one
    // contains itself.
    std::vector<uint32_t> parent;
    std::vector<double> byte_ns;   // of its link there, each direction for itself; 0: unknown
    std::vector<uint32_t> rack_of; // by rank: the network that its host is in

    // Calls take(network, is_up) for the link of each network that a message leaves or enters.
    template <class Take> void each_line(uint32_t from, uint32_t to, Take take) const {
        // A network's number is greater than its parent's, so the greater of two networks never
        // contains the other.
        while (from != to) {
            const bool is_up = from > to;
            uint32_t &inner = is_up ? from : to;
            take(inner, is_up);
            inner = parent[inner];
        }
    }
    // Returns the rate of the slowest link that messages between racks cross; nothing if none of
    // the links that they cross has a known rate.
    std::optional<double> slowest_bytes_per_ns() const;
};

struct SharedLinks {
    std::shared_ptr<const LocalLinks> local = nullptr; // null: ranks are not on GPUs
    std::shared_ptr<const RackLines> racks = nullptr;  // null: there is one rack
};

// Applies QCCL_RACK_RATE, the rate of a rack's link, to the links of all racks. If only `places`
// has racks, each of them gets a link to a network around them. Removes the racks if no link
// between them has a known rate. `places`: of all ranks; null: all are in one place.
void take_settings(const Settings &settings, const RankTopology *places, SharedLinks &links);

// ---- Step counts

// A collective to plan; equal on all ranks.
struct Problem {
    Collective collective = Collective::all_reduce;
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1;
    uint32_t root = 0;
    DataType type = DataType::float32;
    Codec codec;                          // already checked with check_codec
    const RankTopology *places = nullptr; // null: all ranks are on one host
    bool in_rank_order = false;           // the operation does not commute

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
    double remote_sends = 0, remote_recvs = 0; // to and from other hosts
    double remote_series = 0;                  // series of both, as in schedule/message_series
    // The part of these that uses the inner tiers' codec: between hosts of one rack.
    double remote_inner_sends = 0, remote_inner_recvs = 0;
};

struct StepCounts {
    uint32_t chunks = 0; // into which the algorithm cuts the tensor
    // Wire slots for what a rank encodes; the most of all ranks.
    uint32_t outbox = 0;
    uint32_t turns = 0;              // how often the busiest rank waits for messages
    uint32_t rounds = 0;             // as in the algorithm's row
    NoiseMoments noise, inner_noise; // the same; 0 for a lossless codec
    ChunkCounts busiest, mean;       // over ranks; busiest: the maximum of each count by itself
    // What the ranks of the busiest host send to other hosts together, and the part of that with
    // the inner tiers' codec.
    double host_sends = 0, host_inner_sends = 0;
    uint32_t remote_peers = 0; // most ranks of other hosts that a rank sends to
    double remote_rounds = 0;  // rounds of the algorithm that cross hosts
    // If the links between a host's ranks are known: the time of the busiest link for each byte of
    // a chunk, for what travels with the call's codec and for what travels with the inner tiers'
    // codec; and the time of the slowest link in use for each byte that it carries. 0: unknown.
    double local_line_ns = 0, inner_local_line_ns = 0, local_hop_ns = 0;
    // If the links of racks are known: the time of the busiest link for each byte of a chunk.
    double rack_line_ns = 0;
};

// Counts the steps. `links`: links whose load is counted one by one. An error says why there is no
// such schedule.
Result<StepCounts> step_counts(const Algorithm &algorithm, const Problem &problem,
                               const SharedLinks &links = {});

// ---- Load of racks' links

// Returns the time of the busiest of these links for each byte of a chunk. Messages between racks
// belong to the outermost tier, so they travel with the call's codec. `team`: of any rank, with
// places. If all schedules together have more than `most_steps` steps, some ranks of each rack are
// counted in place of all. An error says why there is no such schedule.
Result<double> rack_load(const Algorithm &algorithm, Collective collective, const Team &team,
                         const RackLines &lines, size_t most_steps = size_t{1} << 17);

} // namespace qccl
