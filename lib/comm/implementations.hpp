// What a communicator needs that `kernels` and `topology` implement. The composition root
// (api/assemble.hpp) names the implementations; creation uses them. Any thread may call; what
// blocks says so.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"
#include "device/device.hpp"
#include "plan/calibration.hpp"
#include "plan/explain.hpp"
#include "plan/planner.hpp"
#include "plan/step_counts.hpp"
#include "schedule/rank_topology.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace qccl {

// The links between the ranks of a job, as the planner needs them. Equal on all ranks.
class JobLinks {
public:
    virtual ~JobLinks() = default;
    // Returns the orders in which rings pass the ranks. The first one has the greatest rate at its
    // narrowest hop.
    virtual RingOrders rings() const = 0;
    // Replaces what the planner would assume of the link between hosts, if there are several.
    // QCCL_LINK_RATE and QCCL_LINK_LATENCY take precedence.
    virtual void take_remote_link(const Settings &settings, CostModel &cost_model) const = 0;
    // Returns the paths between the ranks of each host, if all ranks are on GPUs, and the uplinks
    // of the racks, if the hosts with ranks are in several racks.
    virtual SharedLinks shared_links() const = 0;
    // Returns a function that gives the class of the path between any two ranks. The function keeps
    // what it has found, so one thread at a time may call it.
    virtual LinkClassOf link_classes() const = 0;
};

struct RankHost {
    uint32_t host = 0; // numbered in the order of their first ranks
    std::string name;
    std::string rack;
};

struct JoinedTopology {
    std::shared_ptr<const JobLinks> links;
    // By rank: the number of its NUMA node; empty if the machine has none, or only one.
    std::vector<std::optional<uint32_t>> numas;
    std::string warning; // for one rank of the host; may be empty
    std::string origin;  // what was read instead of the hardware; may be empty
    // Of the rank that knows its host first: "hwloc 2.9.0, in 14.2 ms". Empty on other ranks.
    std::string discovery = {};
};

// How the ranks of one job agree on the graph of their machines.
class TopologyAgreement {
public:
    // An all-gather of `bytes` bytes from each rank, in rank order.
    using Gather = std::function<Done(const void *mine, void *all, size_t bytes)>;

    virtual ~TopologyAgreement() = default;
    // All ranks call it together; blocks in `gather`. The first rank of a host writes into the
    // memory `own`; `leaders` is that memory of this host's first rank, which other ranks read
    // until the last all-gather is over. An error comes from the all-gather, or means that another
    // rank has sent invalid data (internal_error).
    virtual Result<JoinedTopology>
    join(std::span<std::byte> own, std::span<const std::byte> leaders, const Gather &gather) = 0;
};

struct FoundCalibration {
    std::optional<CalibrationFile> file; // nothing: there is none, or it is another machine's
    std::string path;                    // of the file, if there is one
    std::string warning;                 // why a file is ignored, in part or as a whole; or empty
};

class TopologySource {
public:
    // Begins to discover the machine, in a thread, where this rank is the first of its host.
    // `hosts`: by rank. `gpu`: the bus id of this rank's GPU; empty: the rank has no GPU, or one in
    // no slot. `has_gpus`: a rank of the job has one, so that links between GPUs count.
    virtual std::unique_ptr<TopologyAgreement> begin(uint32_t rank, std::vector<RankHost> hosts,
                                                     std::string gpu, const Settings &settings,
                                                     bool has_gpus) const = 0;
    // Returns the figures measured on this machine. Figures of another machine are ignored with a
    // warning, and so is a file of the cache directory that cannot be read. If the file that
    // QCCL_CALIBRATION names cannot be read, returns invalid_argument.
    virtual Result<FoundCalibration> find_calibration(const Settings &settings) const = 0;

protected:
    ~TopologySource() = default;
};

struct Implementations {
    // Returns the best kernels of this machine that `mask` allows (one bit per Tier).
    const Kernels &(*best_kernels)(uint32_t mask) = nullptr;
    const TopologySource *topology = nullptr;
};

} // namespace qccl
