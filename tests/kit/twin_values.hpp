// What the slow twin computes with: values of a type, which it converts and sums by the scalar
// reference, one after the other.
#pragma once

#include "slow_twin.hpp"

#include "codec/shared_scales.hpp"
#include "device/exact_sum.hpp"
#include "kernels/cpu/cpu_tiers.hpp"

#include <algorithm>
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

// Adds up vectors of one length as integers under shared scales. The blocks begin at their first
// values.
inline Values summed_as_integers(const std::vector<Values> &summands, const Codec &codec,
                                 uint32_t divisor) {
    std::vector<Values> floats;
    for (const Values &each : summands) floats.push_back(as(DataType::float32, each));
    const auto number = [](Values &of, uint64_t i) -> float & {
        return reinterpret_cast<float *>(of.bytes.data())[i];
    };
    Values sum = floats[0];
    for (uint64_t begin = 0, end = 0; begin < sum.count(); begin = end) {
        end = std::min(begin + codec.shared_block, sum.count());
        uint32_t magnitude = 0;
        for (uint64_t i = begin; i < end; i++)
            for (Values &each : floats)
                magnitude =
                    std::max(magnitude, std::bit_cast<uint32_t>(number(each, i)) & 0x7FFFFFFF);
        const uint16_t scale = shared_scale(magnitude, shared_limit(codec));
        for (uint64_t i = begin; i < end; i++) {
            int64_t integer = 0;
            for (Values &each : floats) integer += std::lrint(integer_of(number(each, i), scale));
            number(sum, i) = value_of_sum(static_cast<float>(integer), scale, divisor);
        }
    }
    return as(summands[0].type, sum);
}

// The slow twin of a call with the codec shared.
inline std::vector<Bytes> shared_twin(const TwinCall &call, const std::vector<Bytes> &inputs) {
    const DataType type = real_type(call.type);
    const size_t part_bytes = call.count * type_bytes(call.type);
    std::vector<Bytes> outputs;
    for (uint32_t rank = 0; rank < call.ranks; rank++) {
        const size_t begin = row_of(call.collective).scatters ? rank * part_bytes : 0;
        std::vector<Values> summands;
        for (const Bytes &input : inputs) {
            const auto first = input.begin() + static_cast<long>(begin);
            summands.push_back({type, Bytes(first, first + static_cast<long>(part_bytes))});
        }
        const uint32_t divisor = call.op == RedOp::avg ? call.ranks : 1;
        outputs.push_back(recv_count(call, rank) == 0
                              ? Bytes()
                              : summed_as_integers(summands, call.codec, divisor).bytes);
    }
    return outputs;
}

} // namespace qtest
