// The GPU kernels by name: X(name) for each. `fold` combines any sources into values or codes.
// `encode` makes codes of one source of values. `measure` makes scales before either. The launches
// of topk follow each other, behind one that clears their sums. The last part of a name is the
// accumulator's type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#define QCCL_KERNELS(X)                                                                            \
    X(fold_int8)                                                                                   \
    X(fold_uint8)                                                                                  \
    X(fold_int32)                                                                                  \
    X(fold_uint32)                                                                                 \
    X(fold_int64)                                                                                  \
    X(fold_uint64)                                                                                 \
    X(fold_float)                                                                                  \
    X(fold_double)                                                                                 \
    X(fold_integer_float)                                                                          \
    X(fold_minmax_float)                                                                           \
    X(encode_integer_float)                                                                        \
    X(encode_integer_double)                                                                       \
    X(encode_minmax_float)                                                                         \
    X(encode_minmax_double)                                                                        \
    X(fold_mxfp8e4m3_float)                                                                        \
    X(encode_mxfp8e4m3_float)                                                                      \
    X(encode_mxfp8e4m3_double)                                                                     \
    X(fold_mxfp6e2m3_float)                                                                        \
    X(encode_mxfp6e2m3_float)                                                                      \
    X(encode_mxfp6e2m3_double)                                                                     \
    X(fold_mxfp4_float)                                                                            \
    X(encode_mxfp4_float)                                                                          \
    X(encode_mxfp4_double)                                                                         \
    X(encode_nvfp4_float)                                                                          \
    X(encode_nvfp4_double)                                                                         \
    X(encode_onebit_float)                                                                         \
    X(encode_onebit_double)                                                                        \
    X(encode_terngrad_float)                                                                       \
    X(encode_terngrad_double)                                                                      \
    X(measure_integer_float)                                                                       \
    X(measure_integer_double)                                                                      \
    X(measure_minmax_float)                                                                        \
    X(measure_minmax_double)                                                                       \
    X(measure_nvfp4_float)                                                                         \
    X(measure_nvfp4_double)                                                                        \
    X(measure_onebit_float)                                                                        \
    X(measure_onebit_double)                                                                       \
    X(clear_sums)                                                                                  \
    X(topk_sample_float)                                                                           \
    X(topk_sample_double)                                                                          \
    X(topk_first_float)                                                                            \
    X(topk_first_double)                                                                           \
    X(topk_digit_float)                                                                            \
    X(topk_digit_double)                                                                           \
    X(topk_count_float)                                                                            \
    X(topk_count_double)                                                                           \
    X(topk_write_float)                                                                            \
    X(topk_write_double)                                                                           \
    X(meet)

namespace qccl {

enum class KernelId : uint8_t {
#define QCCL_KERNEL_ID(name) name,
    QCCL_KERNELS(QCCL_KERNEL_ID)
#undef QCCL_KERNEL_ID
};

inline constexpr std::string_view kernel_names[] = {
#define QCCL_KERNEL_NAME(name) #name,
    QCCL_KERNELS(QCCL_KERNEL_NAME)
#undef QCCL_KERNEL_NAME
};
inline constexpr size_t kernel_count = std::size(kernel_names);
constexpr std::string_view name(KernelId kernel) {
    return kernel_names[static_cast<size_t>(kernel)];
}

} // namespace qccl
