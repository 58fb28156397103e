// Implements caveats.hpp: counts the values that are not finite and puts the counts into words.
#include "perf/caveats.hpp"

#include "perf/values.hpp"

#include <algorithm>
#include <cmath>

namespace qccl::perf {

static uint64_t count_non_finite(const Source &source, uint32_t rank, DataType type,
                                 uint64_t count) {
    static constexpr size_t block = 4096;
    std::vector<std::byte> raw(block * type_bytes(type));
    std::vector<double> values(block);
    uint64_t found = 0;
    for (uint64_t at = 0; at < count; at += block) {
        const size_t here = std::min<uint64_t>(block, count - at);
        source.read(rank, type, at, here, raw.data());
        load_reals(type, raw.data(), here, values.data());
        for (size_t i = 0; i < here; i++) found += !std::isfinite(values[i]);
    }
    return found;
}

Result<std::string> non_finite_note(RankGroup &rank_group, const Source &source, DataType type,
                                    uint64_t count) {
    if (!info(type).is_float) return std::string();
    QCCL_TRY(const auto all,
             gather(rank_group, count_non_finite(source, rank_group.rank(), type, count)));
    uint64_t found = 0;
    for (const uint64_t of_rank : all) found += of_rank;
    if (found == 0) return std::string();
    return std::to_string(found) + " of the " + std::to_string(count * rank_group.size()) +
           " input values " + (found == 1 ? "is" : "are") +
           " NaN or infinite; what contains them has no NMSE";
}

std::string overflow_note(const Row &row) {
    const uint64_t found = std::max(row.out_of_place.overflowed, row.in_place.overflowed);
    if (found == 0) return std::string();
    const Operation &operation = row.operation;
    return std::to_string(found) + (found == 1 ? " result" : " results") + " of " +
           std::to_string(operation.bytes()) + " bytes, " + name(operation.type) + " " +
           name(operation.op) + ", may overflow what " + name(operation.type) + " holds: no NMSE";
}

} // namespace qccl::perf
