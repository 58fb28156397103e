// qcclSumExact: each rank sums its values without an error, all ranks exchange these sums, and each
// rounds the sum of the sums. One thread at a time may be inside a communicator; the function
// blocks until the call is done.
#include "api/call/collective_call.hpp"
#include "api/call/entry.hpp"
#include "api/group/call_group.hpp"
#include "comm/boundary.hpp"
#include "device/exact_sum.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

namespace qccl {

// Blocks pay from so many values on: at the end each of their sums goes to the result by itself.
static LongAccumulator sum_of(const Kernels &kernels, const double *values, size_t count) {
    constexpr size_t few = 4 * ExactBlock::values;
    LongAccumulator sum{};
    if (count <= few) {
        for (size_t i = 0; i < count; i++) sum.add(values[i]);
        return sum;
    }
    const auto block = std::make_unique_for_overwrite<ExactBlock>();
    for (size_t i = 0; i < count; i += ExactBlock::values) {
        const auto take = i == 0 ? kernels.begin_exact : kernels.add_exact;
        take(DataType::float64, block.get(), values + i, std::min(count - i, ExactBlock::values));
    }
    for (size_t i = 0; i < ExactBlock::values; i++) sum.add(block->total(i));
    return sum;
}

static Done check(const Comm &comm, const double *values, size_t count, const double *sum_out) {
    constexpr size_t most = std::numeric_limits<ptrdiff_t>::max() / sizeof(double);
    if (!sum_out) return invalid_argument("sum_out is NULL");
    if (!values && count != 0) return invalid_argument("values is NULL, but count is %zu", count);
    if (count > most)
        return invalid_argument("count is %zu, more values than memory can hold", count);
    if (CallGroup::current())
        return Error::make(Code::invalid_usage,
                           "the sum is a result of the call, which a group would make later; call "
                           "qcclSumExact outside of groups");
    if (comm.parts().policy.has_gpus())
        return invalid_argument("comm: the device of a rank is a GPU, and qcclSumExact sums on "
                                "hosts");
    return {};
}

static Done sum_exactly(Comm &comm, const double *values, size_t count, double *sum_out) {
    QCCL_TRY(check(comm, values, count, sum_out));
    constexpr size_t words = sizeof(LongAccumulator) / sizeof(uint64_t);
    LongAccumulator sum = sum_of(*comm.parts().device.kernels, values, count);
    std::vector<LongAccumulator> sums(comm.size());
    QCCL_TRY(run_call(comm, {.collective = Collective::all_gather,
                             .send = &sum,
                             .recv = sums.data(),
                             .count = words,
                             .type = qcclUint64}));
    sum = {};
    for (const LongAccumulator &each : sums) sum.add(each);
    *sum_out = sum.rounded();
    return {};
}

} // namespace qccl

using namespace qccl;

qcclResult_t qcclSumExact(const double *values, size_t count, double *sum_out, qcclComm_t comm) {
    return inside(comm, [&](Comm &c) -> Done {
        return run_or_abandon(c, Collective::all_gather,
                              [&] { return sum_exactly(c, values, count, sum_out); });
    });
}
QCCL_TWIN(qcclSumExact);
