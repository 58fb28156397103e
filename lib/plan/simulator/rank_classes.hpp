// Groups ranks that do the same at the same time into classes; the simulator runs one rank of each.
// The ranks of a class run the same program, their messages come from and go to ranks of the same
// classes on equal routes, and as many equal flows share each of their links. A ring or a hierarchy
// on equal hosts has a few classes for thousands of ranks; a tree has one for each rank.
//
// The census comes first. It finds out what each rank of a call does: its peers, and the program
// that it runs. A schedule is written, compared and dropped rank by rank, so that thousands of
// ranks fit into memory.
//
// Used by the simulator. Pure; any thread.
#pragma once

#include "base/result.hpp"
#include "plan/rank_program.hpp"
#include "plan/simulator/fabric.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace qccl {

// ---- Census of ranks

// Which ranks may be simulated as one.
enum class Merging : uint8_t {
    none,      // every rank by itself
    alike,     // ranks that do the same, with any chunks and peers; times stay the same
    similar,   // also ranks whose steps differ only in chunks and slots; all chunks count as the
               // longest. Rings and hierarchies come out the same, halving up to a quarter faster
    automatic, // alike, but similar where all ranks together do more than `most_exact_steps`
};
inline constexpr double most_exact_steps = 1e7;

struct RankCensus {
    // A peer, and its number among the rank's peers.
    struct Acquaintance {
        uint32_t rank = 0, number = 0;
    };

    std::vector<RankProgram> programs;
    std::vector<uint32_t> program_of; // by rank
    std::vector<size_t> first;        // index of each rank in the two lists, and the end
    std::vector<uint32_t> in_turn;    // peers by number
    std::vector<Acquaintance> sorted; // peers by rank
    CallGeometry shape;

    uint32_t ranks() const { return static_cast<uint32_t>(program_of.size()); }
    std::span<const uint32_t> peers(uint32_t rank) const {
        return std::span(in_turn).subspan(first[rank], first[rank + 1] - first[rank]);
    }
    // Returns the number of `peer` among the peers of `rank`. There is one, because each message
    // has two ends.
    uint32_t number_at(uint32_t rank, uint32_t peer) const;
};

// Visits all ranks. Calls progress(), unless it is empty, after each of them. Returns the error of
// a schedule that cannot be written.
Result<RankCensus> take_census(const SimulatedCall &call, Merging merging,
                               const std::function<void(uint64_t done, uint64_t of)> &progress);

// ---- Classes

struct RankClasses {
    // Where messages between a class's first rank and one of its peers go.
    struct ClassPeer {
        uint32_t peer_class = 0;
        uint32_t number = 0;                    // of this rank among the peer's peers
        uint32_t uses_first = 0, uses_last = 0; // in `uses`: links to the peer
        double latency_ns = 0, rendezvous_ns = 0;
        uint64_t eager_bytes = 0;             // larger messages take rendezvous_ns longer
        MessageRoute::MessageCost send, recv; // recv: of the peer
        bool is_by_reference = true;
    };
    struct Class {
        uint32_t first_rank = 0, ranks = 0;
        uint32_t program = 0;
        uint32_t peers_first = 0; // in `peers`
        uint32_t core = none;     // in `links`: the cores that it shares, if there are too few
        double core_weight = 0;   // ranks of the class on these cores
    };
    // Stands for all links that are alike, or for cores.
    struct LinkGroup {
        double capacity = 0; // bytes a nanosecond, or cores
        double burst_bytes = 0;
        uint32_t first = 0; // the fabric's first such link or group of cores
        uint32_t count = 0; // how many there are
        bool is_cores = false;
    };
    static constexpr uint32_t none = ~uint32_t{0};

    std::vector<uint32_t> class_of; // by rank
    std::vector<Class> classes;     // in the order of their first ranks
    std::vector<ClassPeer> peers;
    std::vector<FairShare::LinkShare> uses;
    std::vector<LinkGroup> links;
    std::vector<RankProgram> programs;
    CallGeometry shape;
    double call_ns = 0; // time of a call before its first step

    const RankProgram &program(uint32_t number) const { return programs[classes[number].program]; }
    const ClassPeer &peer(uint32_t of_class, uint32_t number) const {
        return peers[classes[of_class].peers_first + number];
    }
};

// Called after each rank with the number of ranks that are done.
using Progress = std::function<void(uint64_t done, uint64_t of)>;

// Finds the classes. Returns invalid_argument if the fabric has another number of ranks than the
// call, and the error of a schedule that cannot be written.
Result<RankClasses> find_rank_classes(const SimulatedCall &call, const Fabric &fabric,
                                      Merging merging, const Progress &progress = {});

} // namespace qccl
