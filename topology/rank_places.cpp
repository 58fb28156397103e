// Deals ranks out over GPUs or over NUMA nodes.
#include "topology/rank_places.hpp"

#include <algorithm>
#include <utility>

namespace qccl {

namespace {

// Divides `count` things into `parts` equal parts and returns the size of part `i`; the first parts
// get one more.
size_t share(size_t count, size_t parts, size_t i) { return count / parts + (i < count % parts); }

} // namespace

Result<std::vector<uint32_t>> rank_places(const Graph &graph, uint32_t ranks) {
    std::vector<uint32_t> gpus = graph.of_kind(VertexKind::gpu);
    if (ranks > gpus.size() && !gpus.empty())
        return Error::make(Code::invalid_argument,
                           "the topology has %zu GPUs, too few for %u ranks: each has its own",
                           gpus.size(), ranks);
    if (!gpus.empty()) {
        std::ranges::stable_sort(gpus, {}, [&](uint32_t gpu) {
            return std::pair(graph.machine_of(gpu), graph.vertex(gpu).number);
        });
        if (ranks != 0) gpus.resize(ranks);
        return gpus;
    }
    const std::vector<uint32_t> machines = graph.of_kind(VertexKind::machine);
    std::vector<std::vector<uint32_t>> numas(machines.size()); // by machine
    for (const uint32_t numa : graph.of_kind(VertexKind::numa)) {
        const auto place = std::ranges::lower_bound(machines, graph.machine_of(numa));
        numas[static_cast<size_t>(place - machines.begin())].push_back(numa);
    }
    std::vector<uint32_t> places;
    for (size_t i = 0; i < machines.size(); i++) {
        if (numas[i].empty()) numas[i] = {machines[i]};
        const size_t here = ranks == 0 ? numas[i].size() : share(ranks, machines.size(), i);
        for (size_t j = 0; j < numas[i].size(); j++)
            places.insert(places.end(), share(here, numas[i].size(), j), numas[i][j]);
    }
    return places;
}

} // namespace qccl
