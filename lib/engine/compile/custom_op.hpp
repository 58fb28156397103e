// Operations that a program has made (qcclRedOpCreate, qcclRedOpCreatePreMulSum), and how a call
// uses one. The C functions make them, requests and calls carry them, and the steps of a reduction
// use them. An operation never changes; any thread may read it. The function runs on the thread
// that runs the call.
#pragma once

#include "base/element_types.hpp"
#include "base/result.hpp"
#include "device/kernels.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace qccl {

struct CustomOp {
    // Combines `values` into `sum`, whose values come from lower ranks. Returns 0 on success.
    using Function = int (*)(void *sum, const void *values, size_t count, int32_t type,
                             void *context);

    int32_t number = 0; // as C knows it, for errors
    RedOp kind = RedOp::custom;
    // Of a custom operation.
    Function function = nullptr;
    void *context = nullptr;
    // Of pre_mul_sum: the factor, a value of `type`, and where it lies if calls read it when they
    // run.
    DataType type = DataType::float32;
    std::array<std::byte, 16> factor{};
    const void *factor_at = nullptr;
};

// What one call does with a function of the program's. After the first failure it combines nothing
// more, so the call has to ask for the outcome before it uses results.
class CustomReduction {
public:
    CustomReduction(const CustomOp &op, DataType type) : op_(op), type_(type) {}

    void combine(std::byte *sum, const std::byte *values, uint64_t count);
    // An error (system_error) says how the function has failed.
    Done outcome() const {
        if (failure_) return *failure_;
        return {};
    }

private:
    const CustomOp &op_;
    const DataType type_; // of the caller's values
    std::optional<Error> failure_;
};

// What one call does with the factor of pre_mul_sum on the host. Products are rounded to the type,
// so that the result is that of a sum of values which the caller has multiplied.
class InputScaling {
public:
    InputScaling(const CustomOp &op, const Kernels &kernels);

    // Writes the products of `src` and the factor; both have the factor's type.
    void multiply(std::byte *dst, const std::byte *src, uint64_t count) const;

private:
    static constexpr uint64_t block_values = 256;
    static constexpr size_t most_value_bytes = 16;
    using Block = std::array<std::byte, block_values * most_value_bytes>;

    const Kernels &kernels_;
    const DataType type_, sum_type_;
    alignas(64) Block factors_; // of the type in which values are summed
};

} // namespace qccl
