// The slow twin of a whole collective: what every rank must end with, computed from the numerical
// contract on plain vectors, one rank after the other, with the scalar reference. Knows no
// schedules, segments, transports or engine.
#pragma once

#include "base/types.hpp"
#include "codec/codec.hpp"
#include "schedule/places.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qtest {

using Bytes = std::vector<std::byte>;

struct TwinCall {
    qccl::Collective collective = qccl::Collective::all_reduce;
    std::string algorithm{};
    qccl::DataType type = qccl::DataType::float32;
    qccl::RedOp op = qccl::RedOp::sum;
    qccl::Codec codec{};
    uint64_t count = 0; // as the C API means it
    uint32_t ranks = 1;
    uint32_t root = 0;
    uint64_t number = 1; // of the call
    uint64_t seed = 0;
    // hierarchy and rings: where each rank is, if not all are in one place; and what unfinished
    // values travel with below the outermost tier.
    qccl::Codec inner_codec{};
    std::vector<qccl::Whereabouts> spots{};
    // The orders of rings, where they do not follow from those.
    std::vector<std::vector<uint32_t>> rings{};
};

// Elements of a rank's send and receive buffers.
uint64_t send_count(const TwinCall &call);
uint64_t recv_count(const TwinCall &call);

// By rank: the receive buffers that the send buffers `inputs` lead to.
std::vector<Bytes> slow_twin(const TwinCall &call, const std::vector<Bytes> &inputs);

} // namespace qtest
