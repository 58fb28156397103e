// The kernel tiers of this architecture's vector units. Highway compiles the common source once per
// target; at run time native_kernels() leaves out the targets that the processor does not support.

// These targets gain nothing over the tiers below them and would cost compile time.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE_256 | HWY_SVE2 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cpu_native.cpp"
#include <hwy/foreach_target.h>

// cpu_generic.cpp compiles the emulated fallback.
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#include "kernels/cpu/cpu_tier-inl.hpp"
#endif

#if HWY_ONCE
#include "kernels/cpu/cpu_tiers.hpp"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace qccl {
namespace {

// Highway's own detection is in its shared library, which the kernels do not link. The functions
// below test the extensions that Highway's targets allow the compiler to use.
#if defined(__x86_64__)
bool has_sse4() {
    return __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("sse4.1") &&
           __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul") &&
           __builtin_cpu_supports("aes");
}
bool has_avx2() {
    unsigned a = 0, b = 0, c = 0, d = 0; // not every compiler can be asked for F16C
    const bool has_f16c = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
    return has_sse4() && has_f16c && __builtin_cpu_supports("avx") &&
           __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}
#elif defined(__aarch64__)
bool has_neon() { return (getauxval(AT_HWCAP) & HWCAP_AES) != 0; }
bool has_sve() { return has_neon() && (getauxval(AT_HWCAP) & HWCAP_SVE) != 0; }
#endif

const Kernels *only_if(bool runs, const Kernels *kernels) { return runs ? kernels : nullptr; }

} // namespace

std::span<const Kernels *const> native_kernels() {
    static const std::array tiers {
#if defined(__x86_64__)
        only_if(has_sse4(), HWY_CHOOSE_SSE4(kernels)),
            only_if(has_avx2(), HWY_CHOOSE_AVX2(kernels)),
            only_if(has_avx512(), HWY_CHOOSE_AVX3(kernels)),
#elif defined(__aarch64__)
        only_if(has_neon(), HWY_CHOOSE_NEON(kernels)), only_if(has_sve(), HWY_CHOOSE_SVE(kernels)),
#endif
    };
    return tiers;
}

} // namespace qccl
#endif
