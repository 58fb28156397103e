// Numbers as multiples of a step.
#pragma once

#include <cstdint>

namespace qccl {

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

} // namespace qccl
