// Kernels that use what codecs' kernels use, one thing each. They know no runtime and no headers of
// it: the compiler's own words are enough. machine_code_test.cpp knows what each should leave in
// memory.
#include "probe_arithmetic.hpp"

#define KERNEL extern "C" __attribute__((global))
#define SHARED __attribute__((shared))
#define DEVICE __attribute__((device))

namespace {

using namespace probe;

DEVICE inline u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE inline u32 threads() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE inline u64 index() { return u64{__builtin_amdgcn_workgroup_id_x()} * threads() + thread(); }
DEVICE inline u32 wave_size() { return __builtin_amdgcn_wavefrontsize(); }
DEVICE inline u32 lane() {
    return __builtin_amdgcn_mbcnt_hi(~0U, __builtin_amdgcn_mbcnt_lo(~0U, 0));
}
DEVICE inline u32 pull(u32 value, u32 from) {
    return static_cast<u32>(
        __builtin_amdgcn_ds_bpermute(static_cast<int>(4 * from), static_cast<int>(value)));
}
DEVICE inline float pull(float value, u32 from) { return as<float>(pull(as<u32>(value), from)); }
DEVICE inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The sum of all threads' values, in an order that depends on nothing; in thread 0.
DEVICE inline float sum_of_block(float value, float *of_waves) {
    for (u32 away = wave_size() / 2; away != 0; away /= 2) value += pull(value, lane() ^ away);
    if (lane() == 0) of_waves[thread() / wave_size()] = value;
    barrier();
    float sum = 0;
    for (u32 wave = 0; wave * wave_size() < threads(); ++wave) sum += of_waves[wave];
    return sum;
}

} // namespace

template <class Op>
__attribute__((global)) void each(const float *a, const float *b, u32 *out, u32 count) {
    const u64 i = index();
    if (i >= count) return;
    out[i] = Op::of(a[i], b[i]);
}
#define EACH(op)                                                                                   \
    template __attribute__((global)) void each<op>(const float *, const float *, u32 *, u32)
EACH(Divide);
EACH(Root);
EACH(MultiplyThenAdd);
EACH(Fused);
EACH(Round);
EACH(Extremes);
EACH(ToInteger);
EACH(FromInteger);
EACH(Halves);
EACH(PackedHalves);
EACH(PackedIntegers);
EACH(SmallIntegers);
EACH(DivideDoubles);
EACH(WideProduct);
EACH(WideDivision);
EACH(BitCounts);
EACH(EightBits);
EACH(Collatz);
EACH(PrivateArray);

KERNEL void draw(u32 *out, u32 key0, u32 key1, u32 count) {
    for (u64 i = index(); i < count;
         i += u64{threads()} * __builtin_amdgcn_grid_size_x() / threads())
        out[i] = philox(static_cast<u32>(i), key0, key1);
}

// Sums, maxima and ballots over a block of any number of threads.
KERNEL void block_sums(const float *in, float *out) {
    SHARED float of_waves[32];
    const float sum = sum_of_block(in[index()], of_waves);
    if (thread() == 0) out[__builtin_amdgcn_workgroup_id_x()] = sum;
}
KERNEL void compact(const u32 *in, u32 *out, u32 *count) {
    const u32 value = in[thread()];
    const bool is_kept = (value & 1) != 0;
    const u64 kept = __builtin_amdgcn_ballot_w64(is_kept);
    const u64 before = kept & ((u64{1} << lane()) - 1);
    SHARED u32 of_waves[32];
    if (lane() == 0)
        of_waves[thread() / wave_size()] = static_cast<u32>(__builtin_popcountll(kept));
    barrier();
    u32 at = static_cast<u32>(__builtin_popcountll(before)), all = 0;
    for (u32 wave = 0; wave < threads() / wave_size(); ++wave) {
        if (wave < thread() / wave_size()) at += of_waves[wave];
        all += of_waves[wave];
    }
    if (is_kept) out[at] = value;
    if (thread() == 0) *count = all;
}

// Bytes in shared memory whose size the launch says, and atomics on both memories.
KERNEL void histogram(const uint8_t *in, u32 *out, u64 *sum, u32 count) {
    extern SHARED u32 bins[];
    for (u32 i = thread(); i < 256; i += threads()) bins[i] = 0;
    barrier();
    for (u64 i = index(); i < count; i += __builtin_amdgcn_grid_size_x()) {
        __atomic_fetch_add(&bins[in[i]], 1U, __ATOMIC_RELAXED);
        __atomic_fetch_add(sum, u64{in[i]} << 30, __ATOMIC_RELAXED);
    }
    barrier();
    for (u32 i = thread(); i < 256; i += threads())
        __atomic_fetch_add(&out[i], bins[i], __ATOMIC_RELAXED);
}

// A byte further than floats should be; and 16 bytes at once.
KERNEL void move_bytes(const uint8_t *in, uint8_t *out, u32 count) {
    const u64 i = index();
    if (i >= count) return;
    float value;
    __builtin_memcpy(&value, in + 4 * i, 4);
    value = -value;
    __builtin_memcpy(out + 4 * i, &value, 4);
}
struct alignas(16) Sixteen {
    u32 word[4];
};
KERNEL void move_vectors(const Sixteen *in, Sixteen *out, u32 count) {
    const u64 i = index();
    if (i >= count) return;
    Sixteen value = in[i];
    for (u32 &word : value.word) word = word * 3 + 1;
    out[i] = value;
}

// Many tensors in one launch, as a parameter of 4 KiB less a little.
struct Batch {
    const float *in[160];
    float *out[160];
    u32 count[160];
    float scale;
};
KERNEL void batched(Batch batch) {
    const u32 tensor = __builtin_amdgcn_workgroup_id_y();
    for (u64 i = index(); i < batch.count[tensor]; i += __builtin_amdgcn_grid_size_x())
        batch.out[tensor][i] = batch.in[tensor][i] * batch.scale;
}
KERNEL void picked(Batch batch, const u32 *which, float *out) {
    out[thread()] = batch.in[which[thread()]][thread()] + batch.scale;
}

// Functions that are called, with a stack.
DEVICE __attribute__((noinline)) u64 called(u32 a, u32 b, u32 *memory) {
    u32 table[12];
    for (u32 i = 0; i < 12; ++i) table[i] = a * i + b;
    memory[0] += table[a % 12];
    return u64{table[b % 12]} << 32 | table[a % 12];
}
DEVICE __attribute__((noinline)) u64 caller(u32 a, u32 b, u32 *memory) {
    return called(a + 1, b, memory) ^ called(a, b + 1, memory);
}
KERNEL void calls(const u32 *in, u64 *out) {
    u32 here = 1;
    out[index()] = caller(in[index()], thread(), &here) + here;
}

KERNEL void places(u32 *out) {
    const u32 x = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() +
                  __builtin_amdgcn_workitem_id_x();
    const u32 y = __builtin_amdgcn_workgroup_id_y() * __builtin_amdgcn_workgroup_size_y() +
                  __builtin_amdgcn_workitem_id_y();
    const u32 z = __builtin_amdgcn_workgroup_id_z() * __builtin_amdgcn_workgroup_size_z() +
                  __builtin_amdgcn_workitem_id_z();
    const u32 width = __builtin_amdgcn_grid_size_x(), height = __builtin_amdgcn_grid_size_y();
    out[(z * height + y) * width + x] = x | y << 10 | z << 20;
}

// Shuffles by a pattern.
KERNEL void patterns(const u32 *in, u32 *out) {
    const int value = static_cast<int>(in[thread()]);
    u32 *row = out + thread();
    const u32 stride = threads();
    row[0] = static_cast<u32>(
        __builtin_amdgcn_update_dpp(-1, value, 0xB1, 0xF, 0xF, false)); // quad_perm 1 0 3 2
    row[stride] = static_cast<u32>(
        __builtin_amdgcn_update_dpp(-1, value, 0x113, 0xF, 0xF, false)); // row_shr 3
    row[2 * stride] = static_cast<u32>(
        __builtin_amdgcn_update_dpp(-1, value, 0x102, 0xF, 0xF, true)); // row_shl 2
    row[3 * stride] = static_cast<u32>(
        __builtin_amdgcn_update_dpp(7, value, 0x140, 0x3, 0x5, false));             // row_mirror
    row[4 * stride] = static_cast<u32>(__builtin_amdgcn_ds_swizzle(value, 0x041F)); // lane ^ 1
    row[5 * stride] = static_cast<u32>(__builtin_amdgcn_readlane(value, 5));
    row[6 * stride] =
        static_cast<u32>(__builtin_amdgcn_update_dpp(0, value, 0x12F, 0xF, 0xF, false)) +
        in[thread()]; // row_ror 15
}

// ---- What must be found.

KERNEL void without_barrier(u32 *out) {
    SHARED u32 values[256];
    values[thread()] = thread();
    out[thread()] = values[threads() - 1 - thread()];
}
KERNEL void beyond(const u32 *in, u32 *out, u32 count) {
    if (index() <= count) out[index()] = in[index()];
}
KERNEL void beyond_shared(u32 *out, u32 offset) {
    extern SHARED u32 dynamic[];
    dynamic[thread() + offset] = 1;
    out[thread()] = dynamic[thread() + offset];
}
KERNEL void unset(u32 *out) {
    SHARED u32 values[64];
    if (thread() == 1000) values[0] = 1;
    barrier();
    out[thread()] = values[thread() % 64];
}
KERNEL void inexact(const float *in, float *out) {
    out[thread()] = __builtin_amdgcn_rcpf(in[thread()]);
}
KERNEL void endless(u32 *out) {
    while (__atomic_load_n(out, __ATOMIC_RELAXED) == 0) {}
}
