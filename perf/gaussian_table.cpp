// Implements gaussian_table.hpp with a table of fixed seed.
#include "perf/gaussian_table.hpp"

#include <algorithm>
#include <random>
#include <vector>

namespace qccl {

void fill_source(DataType type, const Kernels &kernels, std::byte *dst, size_t count,
                 SourceValues values) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> even(-1, 1);
    std::vector<float> table(65521); // a prime, so that blocks differ
    for (float &x : table) x = values == SourceValues::normal ? normal(random) : even(random);
    for (size_t i = 0; i < count; i += table.size())
        kernels.copy(type, dst + i * type_bytes(type), DataType::float32, table.data(),
                     std::min(table.size(), count - i), false);
}

} // namespace qccl
