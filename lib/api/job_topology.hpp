// Brings the ranks of a job to one topology graph. On each host one rank knows the machine, and the
// others read its text in memory that they share. Hosts that differ exchange their texts in pieces.
// Used where a communicator is created; all ranks call it together, and it blocks in the caller's
// all-gather.
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
    // By rank: the number of its NUMA node; empty if the machine has none, or only one.
    std::vector<std::optional<uint32_t>> numas;
};

class TopologyExchange {
public:
    // An all-gather of `bytes` bytes from each rank, in rank order.
    using Gather = std::function<Done(const void *mine, void *all, size_t bytes)>;

    // `hosts`: by rank. `gpu`: the bus id of this rank's GPU; empty: the rank has no GPU, or one in
    // no slot.
    TopologyExchange(uint32_t rank, std::vector<RankHost> hosts, std::string gpu);

    // Whether this rank is the first of its host, which has to know its machine.
    bool is_leader() const { return leaders_[rank_] == rank_; }
    // `known`: what this rank knows of its machine; null only if the rank is no leader. A leader
    // writes into the memory `own`; `leaders` is that memory of this host's leader, which other
    // ranks read until the last all-gather is over. An error comes from the all-gather, or means
    // that another rank has sent invalid data (internal_error).
    Result<AgreedTopology> run(NodeTopologyRef known, std::span<std::byte> own,
                               std::span<const std::byte> leaders, const Gather &gather);
    // The topology of this rank's machine after run(): that of its leader.
    const NodeTopologyRef &node() const { return node_; }

private:
    struct MachineNote;
    struct SharedText;
    using Texts = std::map<uint64_t, SharedText>;      // by hash
    using Nodes = std::map<uint64_t, NodeTopologyRef>; // by hash

    void publish(std::span<std::byte> memory);
    MachineNote note() const;
    Done gather_notes(const Gather &gather, std::vector<MachineNote> &notes) const;
    Done learn_from(std::span<const std::byte> memory, const MachineNote &of_leader);
    Done check_notes(const std::vector<MachineNote> &notes) const;
    Done gather_texts(const Gather &gather, Texts &texts) const;
    Result<Nodes> gather_nodes(const Gather &gather, const std::vector<MachineNote> &notes) const;
    Result<AgreedTopology> merge(const std::vector<MachineNote> &notes, const Nodes &nodes) const;

    const uint32_t rank_;
    const std::vector<RankHost> hosts_;
    const std::string gpu_;
    std::vector<uint32_t> leaders_; // by rank: the first rank on its host
    NodeTopologyRef node_;
};

} // namespace qccl
