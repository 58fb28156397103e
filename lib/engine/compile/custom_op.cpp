// Calls the program's function; what it throws ends here. Multiplies values block by block.
#include "engine/compile/custom_op.hpp"

#include "base/c_numbers.hpp"
#include "base/exception_boundary.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstring>

namespace qccl {

void CustomReduction::combine(std::byte *sum, const std::byte *values, uint64_t count) {
    if (failure_) return;
    const auto returned = exception_boundary([&]() -> Result<int> {
        return op_.function(sum, values, count, number_in_c(type_), op_.context);
    });
    if (!returned)
        failure_ = Error::make(Code::system_error, "the function of op %" PRId32 " threw: %s",
                               op_.number, returned.error().text);
    else if (*returned != 0)
        failure_ = Error::make(Code::system_error, "the function of op %" PRId32 " returned %d",
                               op_.number, *returned);
}

InputScaling::InputScaling(const CustomOp &op, const Kernels &kernels)
    : kernels_(kernels), type_(op.type), sum_type_(accumulator_of(op.type)) {
    const void *const factor = op.factor_at ? op.factor_at : op.factor.data();
    kernels.copy(sum_type_, factors_.data(), type_, factor, 1, false);
    const size_t bytes = type_bytes(sum_type_);
    for (uint64_t i = 1; i < block_values; i++)
        std::memcpy(factors_.data() + i * bytes, factors_.data(), bytes);
}

void InputScaling::multiply(std::byte *dst, const std::byte *src, uint64_t count) const {
    const size_t bytes = type_bytes(type_);
    alignas(64) Block products;
    for (uint64_t i = 0; i < count; i += block_values) {
        const uint64_t now = std::min(block_values, count - i);
        kernels_.copy(sum_type_, products.data(), type_, src + i * bytes, now, false);
        kernels_.reduce(RedOp::prod, sum_type_, products.data(), sum_type_, factors_.data(), now);
        kernels_.copy(type_, dst + i * bytes, sum_type_, products.data(), now, false);
    }
}

} // namespace qccl
