// How the ranks of a job come to one topology graph: on each machine one rank knows it, the others
// read its text in memory that they share, and machines that differ exchange theirs in pieces. Used
// where a communicator is made; all ranks call it together.
#pragma once

#include "api/node_topology.hpp"
#include "topology/job_graph.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

struct RankHost {
    uint32_t host = 0; // numbered in the order of their first ranks
    std::string name;
    std::string rack;
};

struct AgreedTopology {
    std::shared_ptr<const JobTopology> job;
    // By rank, the number of the NUMA node where it is; empty where there is none or but one.
    std::vector<std::optional<uint32_t>> numas;
};

class TopologyExchange {
public:
    // Of `bytes` bytes from each rank, in rank order.
    using Gather = std::function<Done(const void *mine, void *all, size_t bytes)>;

    // `hosts`: by rank. `gpu`: the bus id of this rank's; empty: it has none, or one in no slot.
    TopologyExchange(uint32_t rank, std::vector<RankHost> hosts, std::string gpu);

    // Whether this rank is the first of its host, which has to know its machine.
    bool is_leader() const { return leaders_[rank_] == rank_; }
    // `known`: what this rank knows of its machine; null where it is no leader and knows nothing.
    // `own` is memory in which a leader writes, `leaders` the same memory of this host's leader;
    // other ranks read it until the last all-gather is over. An error is one of the all-gather, or
    // means that another rank has sent what cannot be.
    Result<AgreedTopology> run(NodeTopologyRef known, std::span<std::byte> own,
                               std::span<const std::byte> leaders, const Gather &gather);
    // Of this rank's machine, afterwards: its leader's.
    const NodeTopologyRef &node() const { return node_; }

private:
    struct Note;
    struct SharedText;
    using Texts = std::map<uint64_t, SharedText>;      // by hash
    using Nodes = std::map<uint64_t, NodeTopologyRef>; // by hash

    void publish(std::span<std::byte> memory);
    Note note() const;
    Done gather_notes(const Gather &gather, std::vector<Note> &notes) const;
    Done learn_from(std::span<const std::byte> memory, const Note &of_leader);
    Done check_notes(const std::vector<Note> &notes) const;
    Done gather_texts(const Gather &gather, Texts &texts) const;
    Result<Nodes> gather_nodes(const Gather &gather, const std::vector<Note> &notes) const;
    Result<AgreedTopology> merge(const std::vector<Note> &notes, const Nodes &nodes) const;

    const uint32_t rank_;
    const std::vector<RankHost> hosts_;
    const std::string gpu_;
    std::vector<uint32_t> leaders_; // by rank: the first rank on its host
    NodeTopologyRef node_;
};

} // namespace qccl
