// Rounds a number up to a multiple of a step. Pure.
#pragma once

#include <cstdint>

namespace qccl {

constexpr uint64_t round_up(uint64_t value, uint64_t step) {
    return (value + step - 1) / step * step;
}

} // namespace qccl
