// Computes how many calls a rank's record keeps.
#include "record/record_layout.hpp"

#include <algorithm>
#include <bit>

namespace qccl {

uint32_t RecordShape::calls_of(uint32_t ranks_of_process) {
    constexpr uint32_t fewest = 16, of_all = calls_recorded * 256;
    return std::clamp(std::bit_floor(of_all / std::max(ranks_of_process, 1U)), fewest,
                      calls_recorded);
}

} // namespace qccl
