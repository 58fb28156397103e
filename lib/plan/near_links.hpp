// The links between the ranks of a host, which their messages share: between GPUs they differ from
// pair to pair. Pure data, equal on all ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace qccl {

struct NearLinks {
    // Hosts that are built alike.
    struct Kind {
        uint32_t parts = 0;                      // where ranks are
        std::vector<double> byte_ns;             // by link, each way for itself; 0: unknown
        std::vector<std::vector<uint32_t>> ways; // from * parts + to: the links

        bool operator==(const Kind &) const = default;
    };

    std::vector<Kind> kinds;
    std::vector<uint32_t> kind_of, part_of; // by rank

    // Of a message between two ranks of a host.
    const std::vector<uint32_t> &way(uint32_t from, uint32_t to) const {
        const Kind &kind = kinds[kind_of[from]];
        return kind.ways[part_of[from] * kind.parts + part_of[to]];
    }
};

} // namespace qccl
