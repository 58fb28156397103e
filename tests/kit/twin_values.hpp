// What the slow twin computes with: values of a type, which it converts and sums by the scalar
// reference, one after the other.
#pragma once

#include "slow_twin.hpp"

#include "device/exact_sum.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <vector>

namespace qtest {

using namespace qccl;

struct Values {
    DataType type;
    Bytes bytes;

    uint64_t count() const { return bytes.size() / type_bytes(type); }
};

// Returns the values in another format: rounded at most once, with the same bits if the format is
// the same.
inline Values as(DataType type, const Values &values) {
    Values result{type, Bytes(values.count() * type_bytes(type))};
    scalar_kernels().copy(type, result.bytes.data(), values.type, values.bytes.data(),
                          values.count(), false);
    return result;
}

// Adds up vectors of one length without an error, and rounds their sum once.
inline Values summed_exactly(const std::vector<Values> &summands, uint32_t divisor) {
    const Kernels &kernels = scalar_kernels();
    Values sum = summands[0];
    std::vector<ExactBlock> blocks(sum.count() / ExactBlock::values + 1);
    for (size_t i = 0; i < summands.size(); i++)
        (i == 0 ? kernels.begin_exact : kernels.add_exact)(sum.type, blocks.data(),
                                                           summands[i].bytes.data(), sum.count());
    kernels.round_exact(sum.type, sum.bytes.data(), blocks.data(), sum.count(), divisor);
    return sum;
}

} // namespace qtest
