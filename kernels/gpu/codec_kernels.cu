// Defines all GPU kernels. The compilers of all GPU vendors and, for the emulated GPU, the CPU's
// compiler read this file. Each kernel is a fold, the measuring before a fold, a step of topk, the
// barrier between GPUs, a pass of the codec shared, or keeps a state: it adds what a codec has lost
// to a residual, or a velocity to values.
#include "kernels/gpu/gpu_barrier.hpp"
#include "kernels/gpu/gpu_exact.hpp"
#include "kernels/gpu/gpu_fold.hpp"
#include "kernels/gpu/gpu_kernels.hpp"
#include "kernels/gpu/gpu_shared.hpp"
#include "kernels/gpu/gpu_topk.hpp"

namespace qccl::QCCL_GPU {

// How many blocks of a fold into codes share a multiprocessor: as many as need no memory for what
// does not fit into registers. Code for older GPUs takes a register or two more than three have.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define QCCL_CODED_RESIDENT 2
#else
#define QCCL_CODED_RESIDENT 3
#endif

#define QCCL_DEFINE(name, resident, body)                                                          \
    QCCL_KERNEL(block_threads, resident) name(QCCL_ARGUMENT(Batch) argument) {                     \
        const Batch &batch = in_place(argument);                                                   \
        if (is_called_off(batch)) return;                                                          \
        body;                                                                                      \
    }
#define QCCL_FOLD(name, T) QCCL_DEFINE(name, sizeof(T) < 8 ? 3 : 1, fold<T>(batch))
#define QCCL_ENCODE(name, CodecTraits, T)                                                          \
    QCCL_DEFINE(name, sizeof(T) < 8 ? 3 : 1, (encode_coded<CodecTraits<T>, T>(batch)))
#define QCCL_MEASURE(name, CodecTraits, T) QCCL_DEFINE(name, 2, (measure<CodecTraits<T>, T>(batch)))

QCCL_FOLD(fold_int8, int8_t)
QCCL_FOLD(fold_uint8, uint8_t)
QCCL_FOLD(fold_int32, int32_t)
QCCL_FOLD(fold_uint32, uint32_t)
QCCL_FOLD(fold_int64, int64_t)
QCCL_FOLD(fold_uint64, uint64_t)
QCCL_FOLD(fold_float, float)
QCCL_FOLD(fold_double, double)
QCCL_FOLD(fold_int16, int16_t)
QCCL_FOLD(fold_uint16, uint16_t)
QCCL_FOLD(fold_complex64, Complex<float>)
QCCL_FOLD(fold_complex128, Complex<double>)
QCCL_FOLD(fold_boolean, Boolean)
QCCL_FOLD(fold_float_int, IndexedValue<float>)
QCCL_FOLD(fold_double_int, IndexedValue<double>)
QCCL_FOLD(fold_long_int, IndexedValue<int64_t>)
QCCL_FOLD(fold_int_int, IndexedValue<int32_t>)
QCCL_FOLD(fold_short_int, IndexedValue<int16_t>)
QCCL_DEFINE(fold_exact_float, 1, fold_exact<float>(batch))
QCCL_DEFINE(fold_exact_double, 1, fold_exact<double>(batch))
QCCL_DEFINE(fold_dithered_float, 2, fold_dithered<float>(batch))
QCCL_DEFINE(fold_dithered_double, 1, fold_dithered<double>(batch))
QCCL_DEFINE(fold_grouped_float, 1, fold_grouped<float>(batch))
QCCL_DEFINE(fold_grouped_double, 1, fold_grouped<double>(batch))
QCCL_DEFINE(fold_coded_float, QCCL_CODED_RESIDENT, fold_coded<float>(batch))
QCCL_ENCODE(encode_integer_float, IntegerTraits, float)
QCCL_ENCODE(encode_integer_double, IntegerTraits, double)
QCCL_ENCODE(encode_minmax_float, MinmaxTraits, float)
QCCL_ENCODE(encode_minmax_double, MinmaxTraits, double)
QCCL_ENCODE(encode_mxfp8e4m3_float, Mxfp8e4m3Traits, float)
QCCL_ENCODE(encode_mxfp8e4m3_double, Mxfp8e4m3Traits, double)
QCCL_ENCODE(encode_mxfp6e2m3_float, Mxfp6e2m3Traits, float)
QCCL_ENCODE(encode_mxfp6e2m3_double, Mxfp6e2m3Traits, double)
QCCL_ENCODE(encode_mxfp4_float, Mxfp4Traits, float)
QCCL_ENCODE(encode_mxfp4_double, Mxfp4Traits, double)
QCCL_ENCODE(encode_fp8_float, Fp8Traits, float)
QCCL_ENCODE(encode_fp8_double, Fp8Traits, double)
QCCL_ENCODE(encode_nvfp4_float, Nvfp4Traits, float)
QCCL_ENCODE(encode_nvfp4_double, Nvfp4Traits, double)
QCCL_ENCODE(encode_onebit_float, OnebitTraits, float)
QCCL_ENCODE(encode_onebit_double, OnebitTraits, double)
QCCL_ENCODE(encode_norm_float, NormTraits, float)
QCCL_ENCODE(encode_norm_double, NormTraits, double)
QCCL_ENCODE(encode_tbq_float, TbqTraits, float)
QCCL_ENCODE(encode_tbq_double, TbqTraits, double)
QCCL_DEFINE(encode_terngrad_float, 2, encode_ternary<float>(batch))
QCCL_DEFINE(encode_terngrad_double, 2, encode_ternary<double>(batch))
QCCL_MEASURE(measure_integer_float, IntegerTraits, float)
QCCL_MEASURE(measure_integer_double, IntegerTraits, double)
QCCL_MEASURE(measure_minmax_float, MinmaxTraits, float)
QCCL_MEASURE(measure_minmax_double, MinmaxTraits, double)
QCCL_MEASURE(measure_nvfp4_float, Nvfp4Traits, float)
QCCL_MEASURE(measure_nvfp4_double, Nvfp4Traits, double)
QCCL_DEFINE(measure_onebit_float, 2, measure_means<float>(batch))
QCCL_DEFINE(measure_onebit_double, 2, measure_means<double>(batch))
QCCL_DEFINE(measure_norm_float, 2, measure_norms<float>(batch))
QCCL_DEFINE(measure_norm_double, 2, measure_norms<double>(batch))
QCCL_MEASURE(measure_range_float, RangeTraits, float)
QCCL_MEASURE(measure_range_double, RangeTraits, double)
// A step of topk mostly waits for memory, so many blocks share a multiprocessor.
#define QCCL_TOPK(step)                                                                            \
    QCCL_DEFINE(topk_##step##_float, 4, topk_##step<float>(batch))                                 \
    QCCL_DEFINE(topk_##step##_double, 2, topk_##step<double>(batch))
QCCL_DEFINE(clear_sums, 4, clear(batch))
QCCL_TOPK(sample)
QCCL_TOPK(first)
QCCL_TOPK(digit)
QCCL_TOPK(count)
QCCL_TOPK(write)

QCCL_DEFINE(gpu_barrier, 1, barrier_with_others(batch))

QCCL_DEFINE(keep_error_float, 3, keep_errors<float>(batch))
QCCL_DEFINE(keep_error_double, 1, keep_errors<double>(batch))
QCCL_DEFINE(add_velocity_float, 3, add_velocities<float>(batch))
QCCL_DEFINE(add_velocity_double, 1, add_velocities<double>(batch))

QCCL_DEFINE(shared_scales_float, 3, find_shared_scales<float>(batch))
QCCL_DEFINE(shared_scales_double, 2, find_shared_scales<double>(batch))
QCCL_DEFINE(shared_integers_float, 3, make_shared_integers<float>(batch))
QCCL_DEFINE(shared_integers_double, 1, make_shared_integers<double>(batch))
QCCL_DEFINE(shared_values_float, 3, make_shared_values<float>(batch))
QCCL_DEFINE(shared_values_double, 1, make_shared_values<double>(batch))

KernelFunction kernel(KernelId id) {
    static constexpr KernelFunction kernels[] = {
#define QCCL_KERNEL_FUNCTION(name) name,
        QCCL_KERNELS(QCCL_KERNEL_FUNCTION)
#undef QCCL_KERNEL_FUNCTION
    };
    return kernels[static_cast<size_t>(id)];
}

} // namespace qccl::QCCL_GPU
