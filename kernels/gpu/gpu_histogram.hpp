// What the threads of a block compute together for topk: prefix sums, histograms of digits, and the
// digit of the n-th largest value. All threads of the block must call these functions.
#pragma once

#include "device/topk_scratch.hpp"
#include "kernels/gpu/gpu_fold.hpp"

namespace qccl::QCCL_GPU {

// The sum over the threads before this one, and the sum over all threads.
template <class N> struct Prefix { N before, total; };
// Returns the prefix sum of `own`. `parts` is shared memory with one element per warp.
template <class N, class Parts> QCCL_DEVICE Prefix<N> block_prefix(N own, Parts &&parts) {
    Prefix<N> prefix{0, own};
    for (unsigned mask = 1; mask < lanes; mask *= 2) {
        const N other = shuffle_xor(prefix.total, mask);
        if ((lane() & mask) != 0) prefix.before += other;
        prefix.total += other;
    }
    if (lane() == 0) parts[warp()] = prefix.total;
    barrier();
    prefix.total = 0;
    for (unsigned w = 0; w < block_warps; w++) {
        const N part = parts[w];
        if (w < warp()) prefix.before += part;
        prefix.total += part;
    }
    barrier(); // the next call reuses `parts`
    return prefix;
}

// ---- Histograms

template <class Bins> QCCL_DEVICE void clear_bins(Bins &&bins) {
    for (unsigned i = thread(); i < digit_bins; i += block_threads) bins[i] = 0;
    barrier();
}
// Adds the block's bins to the histogram of all blocks.
template <class Bins> QCCL_DEVICE void add_bins(Bins &&bins, std::byte *histogram) {
    barrier();
    for (unsigned i = thread(); i < digit_bins; i += block_threads)
        if (const uint32_t number = bins[i]; number != 0)
            atomic_add(reinterpret_cast<uint64_t *>(histogram) + i, number);
}

// The bins of a thread; the first thread has the highest bins.
inline constexpr unsigned thread_bins = digit_bins / block_threads;
QCCL_DEVICE unsigned lowest_bin() { return (block_threads - 1 - thread()) * thread_bins; }
QCCL_DEVICE void load_bins(const std::byte *histogram, uint64_t (&bins)[thread_bins]) {
    load(histogram + lowest_bin() * sizeof(uint64_t), bins);
}

// The digit of the n-th largest value, and how many values with that digit are among the n.
struct HistogramCut {
    uint64_t digit, left;
};
// Finds the cut for n = wanted_of(number of values in the histogram). If there are fewer values
// than n, the cut is at the lowest digit.
template <class RankSought>
QCCL_DEVICE HistogramCut find_cut(const std::byte *histogram, RankSought &&wanted_of) {
    QCCL_SHARED(uint64_t, parts, block_warps);
    QCCL_SHARED(uint64_t, cut, 2);
    uint64_t bins[thread_bins], own = 0;
    load_bins(histogram, bins);
#pragma unroll
    for (unsigned i = 0; i < thread_bins; i++) own += bins[i];
    const auto prefix = block_prefix(own, parts);
    const uint64_t wanted = wanted_of(prefix.total);
    if (prefix.before < wanted && wanted <= prefix.before + own) {
        uint64_t left = wanted - prefix.before;
        bool is_found = false;
#pragma unroll
        for (unsigned i = thread_bins; i-- > 0;) {
            if (!is_found && left <= bins[i]) {
                is_found = true;
                cut[0] = lowest_bin() + i;
                cut[1] = left;
            }
            if (!is_found) left -= bins[i];
        }
    } else if (thread() == 0 && prefix.total < wanted) {
        cut[0] = 0;
        cut[1] = 0;
    }
    barrier();
    return {cut[0], cut[1]};
}

} // namespace qccl::QCCL_GPU
